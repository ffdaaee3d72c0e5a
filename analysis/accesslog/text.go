package accesslog

import (
	"bytes"
	"encoding/hex"
	"strings"
)

var (
	newline        = []byte{'\n'}
	carriageReturn = []byte{'\r'}
	byteOrderMark  = []byte("\xef\xbb\xbf") // a prefix that some editors add to UTF-8
)

// cutWord skips leading spaces, and cuts s around the next space.
func cutWord(s []byte) (word, rest []byte) { return cutSpace(trimSpaces(s)) }

// cutSpace is like cutWord, except that a leading space ends an empty word.
func cutSpace(s []byte) (word, rest []byte) {
	if i := bytes.IndexByte(s, ' '); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, nil
}

// skipWords returns s without its first n words.
func skipWords(s []byte, n int) []byte {
	for range n {
		_, s = cutWord(s)
	}
	return s
}

// cutQuoted returns the quoted text at the beginning of s, without its quotes, and the rest.
// A quote that is escaped, or not followed by a space or the end of the line, is part of the
// text, since old servers do not escape quotes. The closing quote of a truncated line may be
// missing.
func cutQuoted(s []byte) (text, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, s, false
	}
	s = s[1:]
	for i := 0; ; i++ {
		j := bytes.IndexByte(s[i:], '"')
		if j < 0 {
			return s, nil, true
		}
		i += j
		if i+1 < len(s) && s[i+1] != ' ' || escaped(s[:i]) {
			continue
		}
		return s[:i], s[i+1:], true
	}
}

// escaped reports whether s ends with an odd number of backslashes.
func escaped(s []byte) bool {
	n := len(s)
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (len(s)-n)%2 == 1
}

// trimSpaces removes leading spaces.
func trimSpaces(s []byte) []byte {
	for len(s) > 0 && s[0] == ' ' {
		s = s[1:]
	}
	return s
}

// escapes are the characters that may follow a backslash; meant are the characters they stand for.
const (
	escapes = "ntrbfv\"\\/'"
	meant   = "\n\t\r\b\f\v\"\\/'"
)

// unescape decodes the escapes of servers' logs, such as \xHH and \".
func (r *record) unescape(s []byte) []byte {
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	from := len(r.plain)
	r.plain = append(r.plain, s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		if c != '\\' || i+1 == len(s) {
			r.plain = append(r.plain, c)
			continue
		}
		i++
		c = s[i]
		at := strings.IndexByte(escapes, c)
		pair, hexadecimal := hexPair(s[i+1:])
		switch {
		case at >= 0:
			r.plain = append(r.plain, meant[at])
		case c == 'x' && hexadecimal:
			r.plain = append(r.plain, pair)
			i += 2
		default:
			n := 0
			if c == 'u' {
				n = r.unicode(s[i+1:])
			}
			if n == 0 {
				r.plain = append(r.plain, '\\', c)
			}
			i += n
		}
	}
	return r.plain[from:]
}

// hexPair decodes the two hexadecimal digits at the beginning of s.
func hexPair(s []byte) (b byte, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	var to [1]byte
	_, err := hex.Decode(to[:], s[:2])
	return to[0], err == nil
}

// unpercent decodes percent-encoding.
func (r *record) unpercent(s []byte) []byte {
	if bytes.IndexByte(s, '%') < 0 {
		return s
	}
	from := len(r.plain)
	for i := 0; i < len(s); i++ {
		if pair, ok := hexPair(s[i+1:]); ok && s[i] == '%' {
			r.plain = append(r.plain, pair)
			i += 2
			continue
		}
		r.plain = append(r.plain, s[i])
	}
	return r.plain[from:]
}

// unplus replaces + by a space: IIS writes spaces as +.
func (r *record) unplus(s []byte) []byte {
	if bytes.IndexByte(s, '+') < 0 {
		return s
	}
	from := len(r.plain)
	for _, c := range s {
		if c == '+' {
			c = ' '
		}
		r.plain = append(r.plain, c)
	}
	return r.plain[from:]
}

// withoutPort returns the address of address:port and [address]:port. It returns other text
// unchanged. The last part of an IPv6 address without brackets is not a port.
func withoutPort(s []byte) []byte {
	if len(s) > 0 && s[0] == '[' {
		if i := bytes.IndexByte(s, ']'); i > 0 {
			return s[1:i]
		}
		return s
	}
	if i := bytes.IndexByte(s, ':'); i > 0 && bytes.IndexByte(s[i+1:], ':') < 0 {
		return s[:i]
	}
	return s
}

// withoutItsPort is like withoutPort for text that always has a port, after the last colon,
// even after an IPv6 address without brackets.
func withoutItsPort(s []byte) []byte {
	if i := bytes.LastIndexByte(s, ':'); i > 0 && s[0] != '[' {
		return s[:i]
	}
	return withoutPort(s)
}

// firstOf returns the first address of a comma-separated list, such as X-Forwarded-For,
// without its port.
func firstOf(s []byte) []byte {
	if i := bytes.IndexByte(s, ','); i >= 0 {
		s = s[:i]
	}
	return withoutPort(bytes.TrimSpace(s))
}
