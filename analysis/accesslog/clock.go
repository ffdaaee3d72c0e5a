package accesslog

import (
	"bytes"
	"time"
)

const second = int64(time.Second / time.Microsecond)

// A clock parses times. It caches the last day and zone, since those of the next line are
// usually the same.
type clock struct {
	location *time.Location

	clfDay    [11]byte // dd/Mon/yyyy
	clfAt     int64    // beginning of the day in UTC, in seconds since the Unix epoch
	clfZone   [5]byte  // +zzzz
	clfOffset int64    // in seconds
	isoDay    [10]byte // yyyy-mm-dd
	isoAt     int64

	wallAt     int64 // last time without a zone, in minutes
	wallOffset int64 // in seconds
	wallKnown  bool
}

// clfLength is the length of dd/Mon/yyyy:HH:MM:SS +zzzz.
const clfLength = 26

// clf parses dd/Mon/yyyy:HH:MM:SS with an optional fraction and an optional zone, +zzzz. The colon before the hour may be
// a space. n is the number of bytes parsed.
func (c *clock) clf(s []byte) (micros int64, n int, ok bool) {
	if len(s) < 20 || s[11] != ':' && s[11] != ' ' {
		return 0, 0, false
	}
	if [11]byte(s[:11]) != c.clfDay {
		day, ok := clfDay(s[:11])
		if !ok {
			return 0, 0, false
		}
		c.clfDay, c.clfAt = [11]byte(s[:11]), day
	}
	secs, ok := hms(s[12:20])
	part, digits := fraction(s[20:])
	n = 20 + digits
	if len(s) < n+6 || s[n] != ' ' || s[n+1] != '+' && s[n+1] != '-' {
		return c.wall(c.clfAt+secs)*second + part, n, ok
	}
	if text := s[n+1 : n+6]; [5]byte(text) != c.clfZone {
		offset, length, ok := zone(text)
		if !ok || length < 5 {
			return 0, 0, false
		}
		c.clfZone, c.clfOffset = [5]byte(text), offset
	}
	return (c.clfAt+secs-c.clfOffset)*second + part, n + 6, ok
}

// ansi parses the time that C's asctime writes, such as Mon Jan  2 15:04:05 2006.
func (c *clock) ansi(s []byte) (micros int64, ok bool) {
	if len(s) != 24 || s[3] != ' ' || s[7] != ' ' || s[10] != ' ' || s[19] != ' ' {
		return 0, false
	}
	day, ok1 := number(trimSpaces(s[8:10]))
	year, ok2 := number(s[20:])
	at, ok3 := dayOf(year, monthOf(s[4:7]), day)
	secs, ok4 := hms(s[11:19])
	return c.wall(at+secs) * second, ok1 && ok2 && ok3 && ok4
}

// clfDay parses dd/Mon/yyyy as seconds since the epoch in UTC.
func clfDay(s []byte) (int64, bool) {
	day, ok := number(s[:2])
	year, ok2 := number(s[7:11])
	month := monthOf(s[3:6])
	if !ok || !ok2 || s[2] != '/' || s[6] != '/' {
		return 0, false
	}
	return dayOf(year, month, day)
}

// monthOf returns the month with the given name, or 0.
func monthOf(name []byte) int {
	i := bytes.Index([]byte("JanFebMarAprMayJunJulAugSepOctNovDec"), name)
	if i%3 != 0 {
		return 0
	}
	return i/3 + 1
}

// dayOf returns the beginning of a day in UTC, in seconds since the epoch. Its year is 1900 to 5138, the last year of unix:
// others are not the time of a request, such as the year 1 of a time that was not set, and reports cannot have all of them.
func dayOf(year, month, day int) (int64, bool) {
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	return t.Unix(), year >= 1900 && year <= 5138 && month >= 1 && month <= 12 && day >= 1 && t.Day() == day
}

// hms parses HH:MM:SS as seconds. A leap second is treated as the following second.
func hms(s []byte) (int64, bool) {
	s = s[:8]
	h1, h0, m1, m0, s1, s0 := s[0]-'0', s[1]-'0', s[3]-'0', s[4]-'0', s[6]-'0', s[7]-'0'
	h, m, sec := int64(h1)*10+int64(h0), int64(m1)*10+int64(m0), int64(s1)*10+int64(s0)
	ok := h1 < 3 && h0 < 10 && h < 24 && m1 < 6 && m0 < 10 && s1 < 7 && s0 < 10 && sec < 61 && s[2] == ':' && s[5] == ':'
	return h*3600 + m*60 + sec, ok
}

// zone parses +hh, +hhmm or +hh:mm as seconds. n is the number of bytes parsed.
func zone(s []byte) (offset int64, n int, ok bool) {
	if len(s) < 3 || s[0] != '+' && s[0] != '-' {
		return 0, 0, false
	}
	hours, ok := number(s[1:3])
	n = 3
	minutes := 0
	if rest := bytes.TrimPrefix(s[3:], []byte{':'}); len(rest) >= 2 {
		if m, digits := number(rest[:2]); digits {
			minutes, n = m, len(s)-len(rest)+2
		}
	}
	offset = int64(hours*3600 + minutes*60)
	if s[0] == '-' {
		offset = -offset
	}
	return offset, n, ok && hours < 24 && minutes < 60
}

// number parses digits of a number that fits.
func number(s []byte) (n int, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<59 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(s) > 0
}

// wall converts seconds shown by a clock without a zone to seconds since the epoch.
func (c *clock) wall(shown int64) int64 {
	if c.location == time.UTC || c.location == nil {
		return shown
	}
	if minute := shown / 60; !c.wallKnown || minute != c.wallAt {
		c.wallAt, c.wallKnown = minute, true
		c.wallOffset = c.offset(shown)
	}
	return shown - c.wallOffset
}

// offset returns the offset from UTC, in seconds, of a clock that shows this time. For a time
// shown twice, it is the offset of the first; for a skipped time, the offset before the change.
func (c *clock) offset(shown int64) int64 {
	at := func(t int64) int64 {
		_, offset := time.Unix(t, 0).In(c.location).Zone()
		return int64(offset)
	}
	const day = 24 * 3600
	before, after := at(shown-day), at(shown+day)
	for _, offset := range [...]int64{max(before, after), min(before, after)} { // the greater offset gives the earlier time
		if at(shown-offset) == offset {
			return offset
		}
	}
	return before
}

// unix parses a time since the epoch with an optional fraction. It is in seconds, or in
// milli-, micro- or nanoseconds if, read as seconds, it would be after the year 5138.
func unix(s []byte) (micros int64, ok bool) {
	whole, part := s, int64(0) // in millionths
	if i := bytes.IndexByte(s, '.'); i >= 0 {
		var digits int
		if part, digits = fraction(s[i:]); digits == 0 || i+digits < len(s) {
			return 0, false
		}
		whole = s[:i]
	}
	shown, ok := number(whole)
	n, unit := int64(shown), second
	for limit := int64(100_000_000_000); n >= limit && unit > 0; limit *= 1000 {
		unit /= 1000
	}
	if unit == 0 {
		return n / 1000, ok
	}
	return n*unit + part*unit/second, ok
}
