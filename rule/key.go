package rule

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyVersion is the first byte of every key. Every encoding has its own version.
const keyVersion = 1

// MaxKeys is the maximum number of keys of a request under a rule.
const MaxKeys = 4

// severalValues is written as the number of values if these are not counted separately.
const severalValues = 1<<32 - 1

// Keys are the keys under which a rule counts a request. They are valid until the buffer in which they
// were made changes. They are small enough to be returned in registers.
type Keys struct {
	bytes []byte // one key, or several followed by their ends, in 4 bytes each
	n     int
}

// Len returns the number of keys. It is 0 if the rule does not count the request.
func (k *Keys) Len() int { return k.n }

// At returns the bytes of key i.
func (k *Keys) At(i int) []byte {
	if k.n == 1 {
		return k.bytes
	}
	from, to := uint32(0), k.end(i)
	if i > 0 {
		from = k.end(i - 1)
	}
	return k.bytes[from:to:to]
}

// end returns the end of the ith of several keys.
func (k *Keys) end(i int) uint32 {
	return binary.BigEndian.Uint32(k.bytes[len(k.bytes)-4*(k.n-i):])
}

// Keys returns the keys that identify r's counts for req, in the memory of buf. A request with at most one
// value of each characteristic has one key. A request that lacks a characteristic with Skip has none.
// Requests with the same key have the same values of all characteristics of the same rule ID:
//
//	version ‖ rule ID ‖ for each characteristic: kind ‖ name ‖ number of values ‖ value
//
// Strings are preceded by their length. Lengths and numbers have 4 bytes, big endian. The number of values
// is 1, or 0 if the request has no value, so that missing values differ from empty ones.
//
// A request with several distinct values of characteristics has a key for each combination of them. If
// there are more than MaxKeys combinations, it has a single key. In this key, the number of values of these
// characteristics is 0xffffffff, and no value follows.
//
// The value of ip is the first address of the client's network, in 4 or 16 bytes. The length of the network
// follows, unless it is an IPv4 /32 or an IPv6 /64, so that nodes with another [ClientPrefix] do not mistake
// the counts of a network for those of a client.
//
// The name of a characteristic of the kind First is followed by the index of the chosen alternative, in one
// byte, and by its values. The value of network is its first address.
//
// The values of path are the forms in which origins may read the path and which r matches. req must be
// canonical. Keys allocates only to grow buf, and if origins read the path in several ways.
func (r *Rule) Keys(buf []byte, req *Request) Keys {
	b, combinations := appendString(append(buf, keyVersion), r.ID), 1
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		var n int
		b = appendString(append(b, byte(c.Kind)), c.Name)
		if c.Kind == First {
			b, n, c = r.appendFirst(b, c, req)
		} else {
			b, n = r.appendValues(b, c, req)
		}
		if n == 0 && c.Skip {
			return Keys{}
		}
		if n > 1 {
			combinations = min(combinations*n, MaxKeys+1)
		}
	}
	if combinations > 1 {
		return r.combine(b, len(buf), combinations)
	}
	return Keys{b[len(buf):len(b):len(b)], 1}
}

// combine appends to b a key for each combination of values, or one key if there are too many. What b has from
// start on is like a key with all values.
func (r *Rule) combine(b []byte, start, combinations int) Keys {
	several := combinations > MaxKeys
	if several {
		combinations = 1
	}
	from := len(b)
	var ends [MaxKeys]uint32
	for key := range combinations {
		i, copied, at := key, start, start+1+4+len(r.ID)
		for j := range r.Characteristics {
			c := &r.Characteristics[j]
			if at += 1 + 4 + len(c.Name); c.Kind == First {
				at++
			}
			number, n, chosen := at, int(binary.BigEndian.Uint32(b[at:])), []byte(nil)
			at += 4
			for k := range n {
				begin := at
				if at += 4 + int(binary.BigEndian.Uint32(b[at:])); k == i%n {
					chosen = b[begin:at]
				}
			}
			if n < 2 {
				continue
			}
			b = append(b, b[copied:number]...)
			if copied = at; several {
				b = binary.BigEndian.AppendUint32(b, severalValues)
			} else {
				b = append(append(b, 0, 0, 0, 1), chosen...)
				i /= n
			}
		}
		b = append(b, b[copied:from]...)
		ends[key] = uint32(len(b) - from)
	}
	if combinations > 1 {
		for _, end := range ends[:combinations] {
			b = binary.BigEndian.AppendUint32(b, end)
		}
	}
	return Keys{b[from:len(b):len(b)], combinations}
}

// AppendKey appends the first of r's keys for req to dst, and reports whether there is one. It is the only
// one unless req has several values of a characteristic.
func (r *Rule) AppendKey(dst []byte, req *Request) (key []byte, counted bool) {
	keys := r.Keys(dst, req)
	if keys.n == 0 {
		return dst, false
	}
	return append(dst, keys.At(0)...), true
}

// appendFirst appends the index of the alternative of c by which req is counted, and its values. It returns their
// number, and the alternative.
func (r *Rule) appendFirst(b []byte, c *Characteristic, req *Request) (_ []byte, n int, _ *Characteristic) {
	before := len(b)
	for i := range c.First {
		if b, n = r.appendValues(append(b[:before], byte(i)), &c.First[i], req); n > 0 || i+1 == len(c.First) {
			return b, n, &c.First[i]
		}
	}
	panic("rule: a characteristic has no alternatives")
}

// appendValues appends the number of req's values of c, and the values.
func (r *Rule) appendValues(b []byte, c *Characteristic, req *Request) (_ []byte, n int) {
	if !c.Kind.several() {
		return c.appendValue(b, req)
	}
	number := len(b)
	b, n = r.collect(append(b, 0, 0, 0, 0), c, req)
	binary.BigEndian.PutUint32(b[number:], uint32(n))
	return b, n
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// A list counts the distinct values of a characteristic that are appended to a key. Once it has more than MaxKeys, other
// values make no difference.
type list struct {
	from  int // where the values begin, each after its length
	n     int
	read  int // cookies or parameters
	pairs int // those with the name
}

// end ends a value that begins at begin, with room for its length. It removes a duplicate.
func (l *list) end(b []byte, begin int) []byte {
	binary.BigEndian.PutUint32(b[begin:], uint32(len(b)-begin-4))
	for at := l.from; at < begin; {
		next := at + 4 + int(binary.BigEndian.Uint32(b[at:]))
		if bytes.Equal(b[at:next], b[begin:]) {
			return b[:begin]
		}
		at = next
	}
	l.n++
	return b
}

// appendValue appends the number of req's values of c, which can have at most one, and the value.
func (c *Characteristic) appendValue(b []byte, req *Request) (_ []byte, n int) {
	switch c.Kind {
	case Host:
		return appendString(append(b, 0, 0, 0, 1), req.Host), 1
	case Method:
		return appendString(append(b, 0, 0, 0, 1), req.Method), 1
	case Label:
		if label, ok := c.Labels.table.Lookup(req.Addr); ok {
			return appendString(append(b, 0, 0, 0, 1), label), 1
		}
		return append(b, 0, 0, 0, 0), 0
	}
	addr, bits := req.client, req.bits
	if c.Kind == Network {
		addr, bits = c.network(req.Addr).Addr(), 0
	}
	if !addr.IsValid() {
		return append(b, 0, 0, 0, 0), 0
	}
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0)
	from := len(b)
	if addr.Is4() {
		a := addr.As4()
		b = append(b, a[:]...)
	} else {
		a := addr.As16()
		b = append(b, a[:]...)
	}
	if bits != 0 {
		b = append(b, bits)
	}
	b[from-1] = byte(len(b) - from)
	return b, 1
}

// collect appends req's distinct values of c, which can have several, and returns their number.
func (r *Rule) collect(b []byte, c *Characteristic, req *Request) (_ []byte, n int) {
	l := list{from: len(b)}
	switch c.Kind {
	case Path:
		b = r.appendPaths(b, &l, req)
	case Header:
		for _, value := range req.fields()[c.canonical] {
			if l.n <= MaxKeys {
				begin := len(b)
				b = l.end(appendString(b, trimBlanks(value)), begin)
			}
		}
	case Cookie:
		for _, line := range req.fields()["Cookie"] {
			b = l.appendPairs(b, line, c.Name, true)
		}
	default:
		b = l.appendPairs(b, req.Query, c.Name, false)
	}
	return b, l.n
}

// appendPaths appends the forms of req's path that r matches.
func (r *Rule) appendPaths(b []byte, l *list, req *Request) []byte {
	forms, several := req.target.read(r.PathSyntax)
	for _, form := range forms[:several] {
		if !r.matchForm(req, form) {
			continue
		}
		begin := len(b)
		if b = append(b, 0, 0, 0, 0); r.PathSyntax.ExactCase {
			b = append(b, form...)
		} else {
			b = appendFolded(b, form)
		}
		b = l.end(b, begin)
	}
	return b
}

// Bounds of what is read. A request with more counts as one with many values.
const (
	maxPairs = 64  // cookies or parameters with a name
	maxRead  = 256 // cookies or parameters
)

// appendPairs appends the values of the cookies in a header, or else of the parameters in a query, with a name. Semicolons
// separate cookies, in aiohttp also blanks; ampersands separate parameters, in Rack also semicolons.
func (l *list) appendPairs(b []byte, text, name string, cookies bool) []byte {
	separator, other := byte('&'), byte(';')
	if cookies {
		text, separator, other = strings.ReplaceAll(text, "\t", " "), ';', ' '
	}
	first := true      // since the last separator
	end, cut := -1, -1 // the next separators
	for i := 0; i < len(text) && l.n <= MaxKeys; {
		c := text[i]
		if c == separator || c == other {
			i, first = i+1, c == separator || first && cookies
			continue
		}
		if l.read++; l.read > maxRead {
			return l.overflow(b)
		}
		if end < i {
			end = next(text, separator, i)
		}
		if cut < i {
			cut = next(text, other, i)
		}
		if end-i >= len(name) && (c == name[0] || c|0x20 < 'a' || 'z' < c|0x20) { // other letters begin other names
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

// overflow appends values until there are more than MaxKeys.
func (l *list) overflow(b []byte) []byte {
	for ; l.n <= MaxKeys; l.n++ {
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

// appendPair appends the value of a cookie or parameter: the first since the last separator or not, divided by the other
// separator or not, after a plain name or another spelling.
func (l *list) appendPair(b []byte, value string, first, divided, plain, cookies bool) []byte {
	if l.pairs++; l.pairs > maxPairs {
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
	illegal := strings.Trim(word, tokenBytes+"><@,:/)(?}{") != ""
	isFlag := strings.EqualFold(word, "secure") || strings.EqualFold(word, "httponly")
	return illegal || isFlag || strings.HasPrefix(word, "$") || strings.HasPrefix(strings.TrimLeft(rest, " "), "=")
}

// appendEncoded appends an encoded value.
func (l *list) appendEncoded(b []byte, value string, cookies bool) []byte {
	begin, n := len(b), l.n
	if b = append(b, 0, 0, 0, 0); cookies {
		b = appendCookie(b, value)
		return l.end(b, begin)
	}
	b = decode(b, value, true)
	decoded := b[begin+4:]
	b = l.end(b, begin)
	if l.n == n || len(decoded) == len(value) && (value == "" || isVisible(decoded[0]) && isVisible(decoded[len(decoded)-1])) {
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

// cutName returns the value of the cookie or parameter at the beginning of text, and reports whether PHP, Express, Rack or
// Django reads its name as name.
func cutName(text, name string, cookies bool) (value string, ok bool) {
	for !cookies && text != "" && text[0] != name[0] && (text[0] == '+' || text[0] == '?' || text[0] == '[' || text[0] == ']') {
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
			if rest = text[n:]; !isBlank(r) && (n > 1 || !isBlank(rune(c))) {
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
