package rule

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is read. A request with more counts as one with many values.
const (
	maxPairs = 8    // cookies, parameters or lines of a header with a name
	maxRead  = 256  // cookies or parameters, empty ones too
	maxValue = 4096 // bytes of a value; browsers send no longer cookies
)

// appendPairs appends the values of the cookies called name in a header, or of such parameters in a query.
// Semicolons separate cookies, and so do blanks in aiohttp; ampersands separate parameters, and so do semicolons in
// Rack.
func (l *list) appendPairs(b []byte, text, name string, cookies bool) []byte {
	separator, other := byte('&'), byte(';')
	if cookies {
		text, separator, other = strings.ReplaceAll(text, "\t", " "), ';', ' '
	}
	first := true      // since the last separator
	end, cut := -1, -1 // the next separators
	for i := 0; i < len(text) && l.n <= l.most; {
		c := text[i]
		if c == other {
			i, first = i+1, first && cookies
			continue
		}
		if l.read++; l.read > maxRead {
			return l.overflow(b)
		}
		if c == separator {
			i, first = i+1, true
			continue
		}
		if end < i {
			end = next(text, separator, i)
		}
		if cut < i {
			cut = next(text, other, i)
		}
		if c == '%' && !cookies {
			c, _ = unescape(text[i:])
		}
		if end-i >= len(name) && (c == name[0] || !isAlphanumeric(c) && c != '=') { // any other byte begins another name
			value, ok := cutName(text[i:end], name, cookies)
			if ok && (first || end-i > len(name)) { // Rack and aiohttp need an equals sign
				plain := end-i == len(name)+1+len(value)
				b = l.appendPair(b, value, first, cut < end, plain, cookies)
			}
		}
		first = end < cut || first && c >= utf8.RuneSelf && trimBlanks(text[i:cut]) == ""
		i = min(end, cut) + 1
	}
	return b
}

// overflow appends values until there are more than l.most.
func (l *list) overflow(b []byte) []byte {
	for ; l.n <= l.most; l.n++ {
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// next returns the index of the first c in text that is at least i, or the length of text.
func next(text string, c byte, i int) int {
	for near := min(i+8, len(text)); i < near; i++ { // most pairs are so short that this is faster than IndexByte
		if text[i] == c {
			return i
		}
	}
	if n := strings.IndexByte(text[i:], c); n >= 0 {
		return i + n
	}
	return len(text)
}

// appendPair appends the value of a cookie or parameter. first reports whether it is the first since the last
// separator, divided whether the other separator divides it, and plain whether its name is spelled as in the rule.
func (l *list) appendPair(b []byte, value string, first, divided, plain, cookies bool) []byte {
	if l.pairs++; l.pairs > maxPairs || len(value) > maxValue {
		return l.overflow(b)
	}
	part, rest := value, ""
	if divided && cookies {
		part, rest, divided = cutBlank(strings.TrimLeft(value, " "))
	} else if divided {
		part, _, divided = strings.Cut(value, ";")
	}
	if cookies {
		value = trimBlanks(value)
	}
	if first {
		b = l.appendEncoded(b, value, cookies)
	}
	if !first || divided && (!cookies || continues(rest)) {
		b = l.appendEncoded(b, part, cookies)
	}
	if cookies && strings.HasPrefix(value, `"`) && (len(value) == 1 || !strings.HasSuffix(value, `"`)) {
		b = l.appendEncoded(b, value[1:max(1, len(value)-1)], true) // Express removes the last character, whatever it is
	}
	if !plain && strings.Contains(value, "]=") {
		b = l.appendEncoded(b, value[strings.Index(value, "]=")+2:], cookies) // user[]=x]=value in Express
	}
	return b
}

// cutBlank cuts s at the first blank after the quoted string that s may begin with.
func cutBlank(s string) (before, after string, found bool) {
	quoted := 0
	if strings.HasPrefix(s, `"`) {
		quoted = strings.IndexByte(s[1:], '"') + 1
	}
	before, after, found = strings.Cut(s[quoted:], " ")
	return s[:quoted+len(before)], after, found
}

// continues reports whether aiohttp reads a cookie that a blank and text follow. It does so unless text begins with a
// legal name without a value.
func continues(text string) bool {
	word, rest, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
	const punctuation = "!#$%&'*+-.^_`|~><@,:/)(?}{"
	illegal := strings.ContainsFunc(word, func(c rune) bool {
		return c >= utf8.RuneSelf || !isAlphanumeric(byte(c)) && !strings.ContainsRune(punctuation, c)
	})
	isFlag := strings.EqualFold(word, "secure") || strings.EqualFold(word, "httponly")
	return illegal || isFlag || strings.HasPrefix(word, "$") || strings.HasPrefix(strings.TrimLeft(rest, " "), "=")
}

// appendEncoded appends an encoded value.
func (l *list) appendEncoded(b []byte, value string, cookies bool) []byte {
	begin, n := len(b), l.n
	b = append(b, 0, 0, 0, 0)
	if cookies {
		b = appendCookie(b, value)
		return l.end(b, begin)
	}
	b = decode(b, value, true)
	decoded := b[begin+4:]
	isControl := func(c byte) bool { return c < ' ' }
	again := len(decoded) > 0 && !(isVisible(decoded[0]) && isVisible(decoded[len(decoded)-1])) ||
		len(decoded) < len(value) && slices.ContainsFunc(decoded, isControl)
	b = l.end(b, begin)
	if l.n == n || !again {
		return b
	}
	begin = len(b)
	b = append(b, 0, 0, 0, 0)
	for _, c := range bytes.TrimFunc(decoded, isBlank) { // as Tornado does
		if c < '\t' || '\r' < c && c < ' ' {
			c = ' '
		}
		b = append(b, c)
	}
	return l.end(b, begin)
}

// cutName returns the value of the cookie or parameter at the beginning of text, and reports whether PHP, Express, Rack
// or Django reads its name as name.
func cutName(text, name string, cookies bool) (value string, ok bool) {
	for !cookies && text != "" && text[0] != name[0] &&
		(text[0] == '+' || text[0] == '?' || text[0] == '[' || text[0] == ']') {
		text = text[1:]
	}
	matched := 0
	for matched < len(name) && matched < len(text) && text[matched] == name[matched] && isAlphanumeric(name[matched]) {
		matched++
	}
	if text = text[matched:]; text != "" && matched < len(name) && isAlphanumeric(text[0]) {
		return "", false
	}
	for text != "" {
		c, rest := text[0], text[1:]
		if c == '=' {
			return rest, matched == len(name)
		}
		if !cookies && (c == '%' || c == '+') {
			c, rest = decodeByte(text, true)
		}
		switch {
		case matched < len(name) && (c == name[matched] || name[matched] == '_' && (c == '.' || c == ' ' || c == '[')):
			matched++
		case matched == len(name) && (c == '[' || !cookies && (c == ']' || c == 0)):
			_, value, _ = strings.Cut(rest, "=")
			return value, true
		case cookies && (matched == 0 && c >= utf8.RuneSelf || matched == len(name)):
			r, n := utf8.DecodeRuneInString(text)
			rest = text[n:]
			if !isBlank(r) && (n > 1 || !isBlank(rune(c))) {
				return "", false
			}
		case cookies || matched > 0 || c != ' ' && c != '?' && c != '[' && c != ']':
			return "", false
		}
		text = rest
	}
	return "", matched == len(name)
}

// isVisible reports whether c is ASCII, and not a blank or a control character.
func isVisible(c byte) bool { return ' ' < c && c < utf8.RuneSelf }

// isBlank reports whether r is a blank or a control character.
func isBlank(r rune) bool { return r < ' ' || unicode.IsSpace(r) }

// trimBlanks returns s without the blanks at both ends, in UTF-8 or Latin-1.
func trimBlanks(s string) string {
	for s != "" && !(isVisible(s[0]) && isVisible(s[len(s)-1])) {
		first, n := utf8.DecodeRuneInString(s)
		last, m := utf8.DecodeLastRuneInString(s)
		switch {
		case isBlank(first) || n == 1 && isBlank(rune(s[0])):
			s = s[n:]
		case isBlank(last) || m == 1 && isBlank(rune(s[len(s)-1])):
			s = s[:len(s)-m]
		default:
			return s
		}
	}
	return s
}

// appendCookie appends the decoded value of a cookie to dst. PHP, Express, Rack and ASP.NET decode percent
// escapes. Rack also decodes plus signs, and Python decodes backslash escapes within quotes. Spellings
// that one of them reads as the same value become the same bytes.
func appendCookie(dst []byte, value string) []byte {
	quoted := len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"'
	if quoted {
		value = value[1 : len(value)-1]
	} else if strings.IndexByte(value, '%') < 0 && strings.IndexByte(value, '+') < 0 {
		return append(dst, value...)
	}
	for value != "" {
		var c byte
		switch {
		case !quoted || value[0] != '\\' || len(value) == 1:
			c, value = decodeByte(value, true)
		case len(value) > 3 && isOctal(value[1:4]):
			c, value = (value[1]-'0')<<6+(value[2]-'0')<<3+(value[3]-'0'), value[4:]
		default:
			c, value = value[1], value[2:]
		}
		if c == '+' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// isOctal reports whether s is a byte in three octal digits.
func isOctal(s string) bool {
	return '0' <= s[0] && s[0] <= '3' && '0' <= s[1] && s[1] <= '7' && '0' <= s[2] && s[2] <= '7'
}
