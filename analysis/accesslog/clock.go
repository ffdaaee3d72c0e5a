package accesslog

import (
	"bytes"
	"cmp"
	"strings"
	"time"
)

const second = int64(time.Second / time.Microsecond)

// A clock parses times. It caches the last day and offset, since those of the next line are usually the same.
type clock struct {
	location *time.Location

	day   string // as written
	dayAt int64  // beginning of the day in UTC, in seconds since the Unix epoch
	order Order  // of the dates since forget

	last   []byte // the last stamp in brackets, including the closing bracket
	lastAt int64  // its time, in microseconds since the Unix epoch

	wallAt     int64 // last time without a zone, in minutes
	wallOffset int64 // in microseconds
	wallKnown  bool
}

// An Order says which kinds of numeric dates with the year last there are. They are read with the month first.
type Order struct {
	Unclear    bool // 05/06/2026 does not show whether the month or the day is first
	MonthFirst bool // 05/13/2026 does
}

func (o Order) or(p Order) Order { return Order{o.Unclear || p.Unclear, o.MonthFirst || p.MonthFirst} }

// DayMayBeFirst reports whether the day could be first in all dates.
func (o Order) DayMayBeFirst() bool { return o.Unclear && !o.MonthFirst }

// forget makes the clock parse the next time even if it is that of the last line.
func (c *clock) forget() { c.day, c.last, c.order = "", c.last[:0], Order{} }

// otherTimes are layouts of times that do not begin with a date that clock.date parses.
var otherTimes = []string{
	time.ANSIC, "Mon Jan _2 15:04:05 UTC 2006", "Mon, 02 Jan 2006 15:04:05 GMT", "20060102150405",
}

// other is stamp for otherTimes.
func (c *clock) other(s []byte) (micros int64, n int, ok bool) {
	for _, layout := range otherTimes {
		n, colon := len(layout), strings.IndexByte(layout, ':')
		if len(s) < n || colon > 0 && s[colon] != ':' || colon < 0 && s[0] != '2' { // an attempt to parse takes long
			continue
		}
		if t, err := time.Parse(layout, string(s[:n])); err == nil && isYear(t.Year()) {
			if strings.Contains(layout, "T") { // UTC or GMT
				return t.UnixMicro(), n, true
			}
			return c.wall(t.UnixMicro()), n, true
		}
	}
	return 0, 0, false
}

// stamp parses a date, a separator, a time of day and an optional zone, or one of otherTimes. n is the number of bytes
// parsed.
func (c *clock) stamp(s []byte) (micros int64, n int, ok bool) {
	if n = len(c.last); n > 0 && len(s) >= n && string(s[:n]) == string(c.last) {
		return c.lastAt, n - 1, true
	}
	n = len("2006-01-02")
	if i := bytes.IndexByte(s[:min(3, len(s))], '/'); i > 0 { // the year is last
		n = i + 1 + bytes.IndexByte(s[i+1:], '/') + len("/2006")
	}
	if len(s) < n {
		return c.other(s)
	}
	at := n
	for at < len(s) && at <= n+len(" - ") && s[at]-'0' > 9 {
		at++
	}
	switch string(s[n:at]) {
	case ":", " ", "T", "t", "_", ", ", " - ":
	default:
		return c.other(s)
	}
	day, ok := c.date(s[:n])
	ofDay, length, ok2 := timeOfDay(s[at:])
	if !ok || !ok2 {
		return c.other(s)
	}
	n = at + length
	micros = day*second + ofDay
	offset, length, zoned := zone(s[n:])
	if zoned {
		n, micros = n+length, micros-offset*second
	} else {
		micros = c.wall(micros)
	}
	if len(s) > n && s[n] == ']' {
		c.last, c.lastAt = append(c.last[:0], s[:n+1]...), micros
	}
	return micros, n, true
}

// date parses yyyy-mm-dd, yyyy/mm/dd, dd/Mon/yyyy or mm/dd/yyyy as seconds since the epoch in UTC. In the last two, a
// day or month may have one digit.
func (c *clock) date(s []byte) (int64, bool) {
	if string(s) == c.day && len(s) > 0 {
		return c.dayAt, true
	}
	layout := "2/Jan/2006"
	switch {
	case len(s) < len("1/2/2006") || len(s) > len("02/Jan/2006"):
		return 0, false
	case s[4] == s[7] && (s[4] == '-' || s[4] == '/'):
		layout = strings.ReplaceAll(time.DateOnly, "-", string(s[4:5]))
	case s[len(s)-len("/2006")] != '/':
		return 0, false
	case s[len(s)-len("1/2006")] <= '9':
		layout = "1/2/2006"
	}
	t, err := time.Parse(layout, string(s))
	if err != nil || !isYear(t.Year()) {
		return 0, false
	}
	if layout == "1/2/2006" {
		c.order = c.order.or(Order{t.Day() <= 12 && t.Day() != int(t.Month()), t.Day() > 12})
	}
	c.day, c.dayAt = string(s), t.Unix()
	return c.dayAt, true
}

// any parses s as a time in any form used in logs.
func (c *clock) any(s []byte) (micros int64, ok bool) {
	s = bytes.TrimSpace(s)
	if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
		s = s[1 : n-1]
	}
	if micros, ok = unix(s); ok {
		return micros, true
	}
	micros, n, ok := c.stamp(s)
	if !ok || n == len(s) || s[n] != ' ' {
		return micros, ok && n == len(s)
	}
	// The zone's name follows. It must be that of the clock, unless there is an offset.
	name, _ := time.UnixMicro(micros).In(cmp.Or(c.location, time.UTC)).Zone()
	return micros, string(s[n+1:]) == name || s[n+1] >= 'A' && bytes.ContainsAny(s[len(time.DateOnly):n], "+-")
}

// isYear reports whether a year is plausible: 1900 to 5138, the last year that unix returns. Any other is a mistake,
// such as the year 1 of an unset time.
func isYear(year int) bool { return year >= 1900 && year <= 5138 }

// timeOfDay parses HH:MM:SS, whose hour may have one digit, an optional fraction, and an optional AM or PM. A leap second
// is treated as the following second. n is the number of bytes parsed.
func timeOfDay(s []byte) (micros int64, n int, ok bool) {
	hour, rest, _ := bytes.Cut(s, []byte{':'})
	if len(hour) > 2 || len(rest) < len("04:05") {
		return 0, 0, false
	}
	h, ok1 := number(hour)
	m, ok2 := number(rest[:2])
	sec, ok3 := number(rest[3:5])
	ok = ok1 && ok2 && ok3 && h < 24 && m < 60 && sec < 61 && rest[2] == ':'
	part, digits := fraction(rest[len("04:05"):])
	n = len(hour) + len(":04:05") + digits
	if end := n + len(" PM"); h >= 1 && h <= 12 && (len(s) == end || len(s) > end && !letters(s[end:end+1])) {
		switch half := s[n:end]; {
		case bytes.EqualFold(half, []byte(" AM")):
			h, n = h%12, end
		case bytes.EqualFold(half, []byte(" PM")):
			h, n = h%12+12, end
		}
	}
	return int64(h*3600+m*60+sec)*second + part, n, ok
}

// fraction parses a point or a comma and the digits after it as microseconds. n is the number of bytes parsed.
func fraction(s []byte) (micros int64, n int) {
	if len(s) == 0 || s[0] != '.' && s[0] != ',' {
		return 0, 0
	}
	scale := second
	for n = 1; n < len(s) && s[n] >= '0' && s[n] <= '9'; n++ {
		scale /= 10
		micros += int64(s[n]-'0') * scale
	}
	if n == 1 {
		return 0, 0
	}
	return micros, n
}

// zone parses Z, UTC, GMT, +hh, +hhmm or +hh:mm, optionally after a space, as an offset in seconds. UTC or GMT may precede an
// offset. n is the number of bytes parsed.
func zone(s []byte) (offset int64, n int, ok bool) {
	if len(s) > 0 && s[0]|0x20 == 'z' {
		return 0, 1, true
	}
	after := trimSpaces(s)
	utc := bytes.HasPrefix(after, []byte("UTC")) || bytes.HasPrefix(after, []byte("GMT"))
	if utc {
		after = after[3:]
	}
	if len(after) < 3 || after[0] != '+' && after[0] != '-' {
		return 0, len(s) - len(after), utc
	}
	hours, ok := number(after[1:3])
	minutes, rest := 0, after[3:]
	digits := rest
	if len(rest) > 0 && rest[0] == ':' {
		digits = rest[1:]
	}
	if len(digits) >= 2 {
		if m, ok := number(digits[:2]); ok {
			minutes, rest = m, digits[2:]
		}
	}
	offset = int64(hours*3600 + minutes*60)
	if after[0] == '-' {
		offset = -offset
	}
	return offset, len(s) - len(rest), ok && hours < 24 && minutes < 60
}

// number parses decimal digits. ok is false if the number is too large.
func number(s []byte) (n int, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<59 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(s) > 0
}

// wall converts the time shown by a clock without a zone to microseconds since the epoch.
func (c *clock) wall(shown int64) int64 {
	if c.location == time.UTC || c.location == nil {
		return shown
	}
	if minute := shown / (60 * second); !c.wallKnown || minute != c.wallAt {
		c.wallAt, c.wallKnown = minute, true
		c.wallOffset = c.offset(shown/second) * second
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
	return n*unit + part*unit/second, ok && len(whole) != len("20060102150405") // see otherTimes
}
