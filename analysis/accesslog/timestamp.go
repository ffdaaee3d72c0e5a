package accesslog

import "bytes"

// iso parses yyyy-mm-ddTHH:MM:SS with an optional fraction and an optional zone: Z, +hh, +hhmm
// or +hh:mm. The T may be a space or an underscore, and the date may have slashes. n is the
// number of bytes parsed.
func (c *clock) iso(s []byte) (micros int64, n int, ok bool) {
	if len(s) < 19 || s[10] != 'T' && s[10] != ' ' && s[10] != 't' && s[10] != '_' {
		return 0, 0, false
	}
	day, ok := c.date(s[:10])
	secs, ok2 := hms(s[11:19])
	if !ok || !ok2 {
		return 0, 0, false
	}
	n = 19
	part, digits := fraction(s[n:])
	n += digits
	seconds := day + secs
	offset, length, zoned := isoZone(s[n:])
	if !zoned {
		return c.wall(seconds)*second + part, n, true
	}
	return (seconds-offset)*second + part, n + length, true
}

// fraction parses a point or a comma, and digits, as microseconds. n is the number of bytes
// parsed.
func fraction(s []byte) (micros int64, n int) {
	if len(s) < 2 || s[0] != '.' && s[0] != ',' {
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

// isoZone parses Z or a zone, optionally after a space, as an offset in seconds. n is the number of bytes parsed.
func isoZone(s []byte) (offset int64, n int, ok bool) {
	if len(s) > 0 && s[0]|0x20 == 'z' {
		return 0, 1, true
	}
	after := trimSpaces(s)
	offset, n, ok = zone(after)
	return offset, n + len(s) - len(after), ok
}

// date parses yyyy-mm-dd or yyyy/mm/dd as seconds since the epoch in UTC.
func (c *clock) date(s []byte) (int64, bool) {
	if len(s) != 10 {
		return 0, false
	}
	if [10]byte(s) == c.isoDay {
		return c.isoAt, true
	}
	year, ok := number(s[:4])
	month, ok2 := number(s[5:7])
	day, ok3 := number(s[8:])
	if !ok || !ok2 || !ok3 || s[4] != s[7] || s[4] != '-' && s[4] != '/' {
		return 0, false
	}
	at, ok := dayOf(year, month, day)
	if ok {
		c.isoDay, c.isoAt = [10]byte(s), at
	}
	return at, ok
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
	if micros, n, ok := c.iso(s); ok {
		rest := s[n:]
		return micros, len(rest) == 0 || rest[0] == ' ' // the zone's name
	}
	if micros, n, ok := c.clf(s); ok && n == len(s) {
		return micros, true
	}
	return c.ansi(s)
}
