package accesslog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	newline       = []byte{'\n'}
	byteOrderMark = []byte("\xef\xbb\xbf") // a prefix that some editors add to UTF-8
)

// color matches a terminal's sequences such as ESC[0;33m.
var color = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// withoutColors removes colors from text.
func withoutColors(text []byte) []byte {
	if bytes.IndexByte(text, '\x1b') < 0 {
		return text
	}
	return color.ReplaceAll(text, nil)
}

// withoutMarks removes a byte order mark before a line and carriage returns after it.
func withoutMarks(line []byte) []byte {
	for len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return bytes.TrimPrefix(line, byteOrderMark)
}

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

// nextQuote returns the index of the first quote in s, from index at on, that is not escaped by a backslash, or -1.
func nextQuote(s []byte, at int) int {
	for ; ; at++ {
		i := bytes.IndexByte(s[at:], '"')
		if i < 0 {
			return -1
		}
		at += i
		begin := at // of the backslashes before the quote
		for begin > 0 && s[begin-1] == '\\' {
			begin--
		}
		if (at-begin)%2 == 0 {
			return at
		}
	}
}

// closingQuote returns the index of the first quote in s that is not escaped and is followed by until or, if that is
// empty, by a space, a tab or the end of s. It returns -1 if there is no such quote.
func closingQuote(s, until []byte) int {
	for at := nextQuote(s, 0); at >= 0; at = nextQuote(s, at+1) {
		rest := s[at+1:]
		follows := len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t'
		if len(until) > 0 {
			follows = len(rest) > 0 && rest[0] == until[0] && (len(until) == 1 || bytes.HasPrefix(rest, until))
		}
		if follows {
			return at
		}
	}
	return -1
}

// trimSpaces removes leading spaces and tabs.
func trimSpaces(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

// unescape returns the text of v without escapes: \ in servers' logs, such as \xHH and \", % in percent-encoding,
// and +, which IIS writes for a space. Unknown escapes are kept.
func (r *record) unescape(v value) []byte {
	s := v.text
	if v.escape == 0 || v.escape == '+' && bytes.IndexByte(s, ' ') >= 0 { // not encoded
		return s
	}
	i := bytes.IndexByte(s, v.escape)
	if i < 0 {
		return s
	}
	from := len(r.plain)
	for ; i >= 0; i = bytes.IndexByte(s, v.escape) {
		r.plain = append(r.plain, s[:i]...)
		s = s[i:]
		s = s[r.escape(s):]
	}
	r.plain = append(r.plain, s...)
	return r.plain[from:]
}

// escapes are the characters that may follow a backslash; unescaped are the characters they stand for.
const (
	escapes   = "ntrbfv\"\\/'"
	unescaped = "\n\t\r\b\f\v\"\\/'"
)

// escape appends the character for the escape at the beginning of s to r.plain. It returns the length of the escape.
func (r *record) escape(s []byte) int {
	next, after := byte(0), 1 // what follows a backslash
	if s[0] == '\\' && len(s) > 1 {
		next, after = s[1], 2
	}
	at := strings.IndexByte(escapes, next)
	c, ok := hexadecimal(s[after:], 2)
	switch {
	case s[0] == '+':
		r.plain = append(r.plain, ' ')
		return 1
	case ok && (s[0] == '%' || next == 'x'):
		r.plain = append(r.plain, byte(c))
		return after + 2
	case after == 1: // nothing follows that is known
		r.plain = append(r.plain, s[0])
		return 1
	case at >= 0:
		r.plain = append(r.plain, unescaped[at])
		return 2
	}
	if c, ok = hexadecimal(s[2:], 4); !ok || next != 'u' {
		r.plain = append(r.plain, '\\', next)
		return 2
	}
	n := 6
	if second, ok := bytes.CutPrefix(s[n:], []byte(`\u`)); ok && utf16.IsSurrogate(c) {
		low, _ := hexadecimal(second, 4)
		if c = utf16.DecodeRune(c, low); c != utf8.RuneError {
			n = 12
		}
	}
	r.plain = utf8.AppendRune(r.plain, c)
	return n
}

// hexadecimal decodes the n hexadecimal digits, 2 or 4, at the beginning of s.
func hexadecimal(s []byte, n int) (c rune, ok bool) {
	if len(s) < n {
		return 0, false
	}
	var b [2]byte
	_, err := hex.Decode(b[:], s[:n])
	return rune(binary.BigEndian.Uint16(b[:]) >> (16 - 4*n)), err == nil
}

// withoutPort returns the address of address:port and [address]:port, without a zone, and IPv4 mapped to IPv6 as IPv4. It
// returns other text unchanged. The last part of an IPv6 address without brackets is not a port.
func withoutPort(s []byte) []byte {
	i := bytes.IndexByte(s, ':')
	if i < 0 && (len(s) == 0 || s[0] != '[') {
		return s
	}
	if end := bytes.IndexByte(s, ']'); s[0] == '[' && end > 0 {
		s = s[1:end]
	} else if _, ok := number(s[i+1:]); ok && i > 0 {
		return s[:i]
	}
	if mapped, ok := bytes.CutPrefix(s, []byte("::ffff:")); ok && bytes.IndexByte(mapped, '.') > 0 {
		return mapped
	}
	address, _, _ := bytes.Cut(s, []byte{'%'})
	return address
}

// withoutLastPort is like withoutPort for text that always has a port, after the last colon,
// even after an IPv6 address without brackets.
func withoutLastPort(s []byte) []byte {
	if i := bytes.LastIndexByte(s, ':'); i > 0 && s[0] != '[' {
		return s[:i]
	}
	return withoutPort(s)
}

// firstOf returns the first address of a comma-separated list, such as X-Forwarded-For, without quotes and port, or the
// first element if none is an address.
func firstOf(s []byte) []byte {
	if bytes.IndexByte(s, ',') < 0 {
		if len(s) > 0 && s[0] > '\'' && s[len(s)-1] > '\'' { // nothing to trim
			return withoutPort(s)
		}
		return withoutPort(bytes.Trim(s, ` "'`))
	}
	var first []byte
	for element := range bytes.SplitSeq(s, []byte{','}) {
		name := withoutPort(bytes.Trim(element, ` +"'`))
		if addressOf(name).IsValid() {
			return name
		}
		if first == nil {
			first = name
		}
	}
	return first
}
