package rule

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// appendFolded appends s to dst in lower case. Characters with the same upper case have the same lower
// case here. Bytes that are not UTF-8 stay as they are.
func appendFolded(dst []byte, s string) []byte {
	begin := len(dst)
	dst = append(dst, s...)
	folded := dst[begin:]
	for i, c := range folded {
		if c >= utf8.RuneSelf {
			return appendFoldedRunes(dst[:begin+i], s[i:])
		}
		if 'A' <= c && c <= 'Z' {
			folded[i] = c + 'a' - 'A'
		}
	}
	return dst
}

// appendFoldedRunes is appendFolded for any characters.
func appendFoldedRunes(dst []byte, s string) []byte {
	for i, n := 0, 0; i < len(s); i += n {
		c := rune(s[i])
		switch n = 1; {
		case c < utf8.RuneSelf:
			dst = append(dst, lowerByte(s[i]))
			continue
		case 0xc2 <= c && c < 0xe0 && i+1 < len(s) && s[i+1]&0xc0 == 0x80: // faster than package utf8
			c, n = c&0x1f<<6|rune(s[i+1]&0x3f), 2
		default:
			c, n = utf8.DecodeRuneInString(s[i:])
		}
		if int(c) < len(folding) && folding[c] != 0 {
			dst = utf8.AppendRune(dst, c+folding[c])
		} else {
			dst = append(dst, s[i:i+n]...)
		}
	}
	return dst
}

// folding has what to add to a character to get the lower case of its upper case.
var folding = func() []rune {
	differences := make([]rune, 0x1ea00)
	for _, r := range unicode.CaseRanges {
		for c := rune(r.Lo); c <= rune(r.Hi); c++ {
			differences[c] = unicode.ToLower(unicode.ToUpper(c)) - c
		}
	}
	return differences
}()

// cutFolded returns path without prefix, which is folded. ok is false if path does not begin with it in any case.
func cutFolded(path, prefix string) (rest string, ok bool) {
	for prefix != "" && path != "" {
		if c := path[0]; c < utf8.RuneSelf {
			if lowerByte(c) != prefix[0] {
				return "", false
			}
			prefix, path = prefix[1:], path[1:]
			continue
		}
		_, n := utf8.DecodeRuneInString(path)
		var buf [utf8.UTFMax]byte
		folded := appendFolded(buf[:0], path[:n])
		if prefix, ok = strings.CutPrefix(prefix, string(folded)); !ok {
			return "", false
		}
		path = path[n:]
	}
	return path, prefix == ""
}
