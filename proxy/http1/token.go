package http1

import (
	"bytes"
	"iter"
)

// Classes of bytes, as bits of class.
const (
	tchar  = 1 << iota // of a token (RFC 9110, 5.6.2)
	text               // of a field value: visible, blank, or obs-text (RFC 9110, 5.5)
	target             // of a request target: visible except '#', and non-ASCII bytes, as in nginx
	digit
	hex
	alphanumeric
)

var class = func() (c [256]uint8) {
	for b := range 256 {
		switch {
		case b > ' ' && b != 0x7f:
			c[b] |= text | target
		case b == ' ' || b == '\t':
			c[b] |= text
		}
		switch {
		case '0' <= b && b <= '9':
			c[b] |= tchar | digit | hex | alphanumeric
		case 'a' <= b|0x20 && b|0x20 <= 'z':
			c[b] |= tchar | alphanumeric
			if b|0x20 <= 'f' {
				c[b] |= hex
			}
		}
	}
	c['#'] &^= target
	for _, b := range "!#$%&'*+-.^_`|~" {
		c[b] |= tchar
	}
	return c
}()

// all reports whether s is not empty and each byte is in one of the classes.
func all(s []byte, classes uint8) bool {
	for _, b := range s {
		if class[b]&classes == 0 {
			return false
		}
	}
	return len(s) > 0
}

// equalFold reports whether s in lower case equals lower, which is ASCII in lower case.
func equalFold(s []byte, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i, b := range s {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}

// trim trims blanks from s.
func trim(s []byte) []byte {
	return bytes.Trim(s, " \t")
}

// elements yields the non-empty elements of a comma-separated list (RFC 9110, 5.6.1).
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for e := range bytes.SplitSeq(list, []byte(",")) {
			if e = trim(e); len(e) > 0 && !yield(e) {
				return
			}
		}
	}
}
