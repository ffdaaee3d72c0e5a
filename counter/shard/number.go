package shard

import "bytes"

// Numbers are read as C's strtoul and its kin do, since clients have come to
// send whatever those accept: leading white space and a sign are allowed, and
// white space or a NUL ends the number. Those that return 32 bits take the low
// 32 bits of what was read.

func parseUint64(b []byte) (uint64, bool) {
	magnitude, negative, ok := parseInteger(b)
	if !ok {
		return 0, false
	}
	v := magnitude
	if negative {
		v = -v
	}
	if int64(v) < 0 {
		// A large number may be a negative one in disguise.
		if end := bytes.IndexByte(b, 0); end >= 0 {
			b = b[:end]
		}
		if bytes.IndexByte(b, '-') >= 0 {
			return 0, false
		}
	}
	return v, true
}

func parseUint32(b []byte) (uint32, bool) {
	v, ok := parseUint64(b)
	return uint32(v), ok
}

func parseInt32(b []byte) (int32, bool) {
	magnitude, negative, ok := parseInteger(b)
	switch {
	case !ok:
		return 0, false
	case negative:
		return int32(-magnitude), magnitude <= 1<<63
	default:
		return int32(magnitude), magnitude < 1<<63
	}
}

func parseInteger(b []byte) (magnitude uint64, negative, ok bool) {
	i := 0
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		negative = b[i] == '-'
		i++
	}
	start := i
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if magnitude > (1<<64-1-digit)/10 {
			return 0, false, false
		}
		magnitude = magnitude*10 + digit
	}
	if i == start || i < len(b) && b[i] != 0 && !isSpace(b[i]) {
		return 0, false, false
	}
	return magnitude, negative, true
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
