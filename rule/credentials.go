package rule

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// appendCredentials appends a line of Authorization or Proxy-Authorization: the scheme in lower case, a space, and the
// credentials. It decodes those of Basic and the signature of a JWT, since many servers accept any base64 that decodes
// to the same bytes. A value without a scheme stays as it is.
func (l *list) appendCredentials(b []byte, value string) []byte {
	end := firstBlank(value)
	scheme, credentials, encoded := value[:end], trimBlanks(value[end:]), ""
	if credentials == "" {
		begin := len(b)
		return l.end(appendString(b, value), begin)
	}
	basic := strings.EqualFold(scheme, "basic")
	if basic {
		credentials, encoded = "", credentials
	} else if strings.EqualFold(scheme, "bearer") {
		credentials = credentials[:firstBlank(credentials)] // many servers ignore what follows
		if strings.Count(credentials, ".") == 2 {
			end = strings.LastIndexByte(credentials, '.') + 1
			credentials, encoded = credentials[:end], credentials[end:]
		}
	}
	if len(encoded) > maxValue {
		return l.overflow(b)
	}
	for url := !basic || !strings.ContainsAny(encoded, "-_"); ; url = true { // decoders read - and _ or skip them
		begin, ok := len(b), false
		b = append(b, 0, 0, 0, 0)
		for i := range len(scheme) {
			b = append(b, lowerByte(scheme[i]))
		}
		if b, ok = appendBase64(append(append(b, ' '), credentials...), encoded, url); !ok {
			return l.overflow(b[:begin])
		}
		if nul := bytes.IndexByte(b[begin+4:], 0); basic && nul >= 0 { // PHP ends the password there
			b = b[:begin+4+nul]
		}
		b = l.end(b, begin)
		if url {
			return b
		}
	}
}

// firstBlank returns the index of the first blank in s, in UTF-8 or Latin-1, or the length of s.
func firstBlank(s string) int {
	for i, n := 0, 1; i < len(s); i += n {
		n = 1
		if isVisible(s[i]) {
			continue
		}
		var r rune
		if r, n = utf8.DecodeRuneInString(s[i:]); isBlank(r) || n == 1 && isBlank(rune(s[i])) {
			return i
		}
	}
	return len(s)
}

// appendBase64 appends the bytes that s encodes, with or without padding. It skips bytes that are not in the alphabet,
// as Python, PHP, Ruby and Node.js do; url says whether - and _ are in it. ok is false if something follows the
// padding, where decoders differ.
func appendBase64(b []byte, s string, url bool) (_ []byte, ok bool) {
	var bits uint32
	n, padded := 0, false
	for i := range len(s) {
		switch digit := base64Digits[s[i]]; {
		case s[i] == '=':
			padded = true
		case digit == 0 || digit >= 128 && !url:
		case padded:
			return b, false
		default:
			bits = bits<<6 | uint32(digit&63)
			if n += 6; n >= 8 {
				n -= 8
				b = append(b, byte(bits>>n))
			}
		}
	}
	return b, true
}

// base64Digits are the values of digits in base64, plus 64, or plus 128 if they are only in the alphabet for URLs.
var base64Digits = func() (values [256]byte) {
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" {
		values[c] = byte(64 + i)
	}
	values['-'], values['_'] = 128+62, 128+63
	return values
}()
