package rule

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
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
	var room [4]choice
	choices := room[:0]
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		var number int
		b = appendString(append(b, byte(c.Kind)), c.Name)
		if c.Kind == First {
			b, number, c = r.appendFirst(b, c, req)
		} else {
			b, number = r.appendValues(b, c, req)
		}
		n := int(binary.BigEndian.Uint32(b[number:]))
		if n == 0 && c.Skip {
			return Keys{}
		}
		if n > 1 {
			choices = append(choices, choice{number, len(b), n})
			combinations = min(combinations*n, MaxKeys+1)
		}
	}
	if len(choices) == 0 {
		return Keys{b[len(buf):len(b):len(b)], 1}
	}
	several := combinations > MaxKeys
	if several {
		combinations = 1
	}
	from := len(b) // of the keys; what is before them has all values
	var ends [MaxKeys]uint32
	for i := range combinations {
		at, rest := len(buf), i
		for _, c := range choices {
			b = append(b, b[at:c.number]...)
			if at = c.end; several {
				b = binary.BigEndian.AppendUint32(b, severalValues)
			} else {
				b = append(append(b, 0, 0, 0, 1), nthValue(b[c.number+4:], rest%c.n)...)
				rest /= c.n
			}
		}
		b = append(b, b[at:from]...)
		ends[i] = uint32(len(b) - from)
	}
	if combinations > 1 {
		for _, end := range ends[:combinations] {
			b = binary.BigEndian.AppendUint32(b, end)
		}
	}
	return Keys{b[from:len(b):len(b)], combinations}
}

// A choice is where a request has several values of a characteristic.
type choice struct {
	number int // where their number is
	end    int // where they end
	n      int // how many there are, at most MaxKeys+1
}

// nthValue returns the value with the index i in values, with its length.
func nthValue(values []byte, i int) []byte {
	for ; ; i-- {
		n := 4 + int(binary.BigEndian.Uint32(values))
		if i == 0 {
			return values[:n]
		}
		values = values[n:]
	}
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

// appendFirst appends the index of the alternative of c by which req is counted, and its values. It returns the
// alternative, and where the number of values is.
func (r *Rule) appendFirst(b []byte, c *Characteristic, req *Request) (_ []byte, number int, _ *Characteristic) {
	for i := range c.First {
		with, number := r.appendValues(append(b, byte(i)), &c.First[i], req)
		if i+1 == len(c.First) || binary.BigEndian.Uint32(with[number:]) > 0 {
			return with, number, &c.First[i]
		}
		b = with[:len(b)] // in case it has grown
	}
	panic("rule: a characteristic has no alternatives")
}

// appendValues appends the number of req's values of c, and the values. It returns where the number is.
func (r *Rule) appendValues(b []byte, c *Characteristic, req *Request) (_ []byte, number int) {
	number = len(b)
	if !c.Kind.several() {
		return c.appendValue(b, req), number
	}
	v := r.collect(values{append(b, 0, 0, 0, 0), number + 4, 0}, c, req)
	binary.BigEndian.PutUint32(v.bytes[number:], uint32(v.n))
	return v.bytes, number
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// values are distinct values at the end of bytes, each preceded by its length. Their methods return the
// result, so that bytes can stay on the stack.
type values struct {
	bytes []byte
	from  int // start of the first value
	n     int // at most MaxKeys+1
}

// begin begins a value. The caller appends it to bytes, then calls end.
func (v values) begin() values {
	v.bytes = append(v.bytes, 0, 0, 0, 0)
	return v
}

// end ends the value whose length is at from. It removes the value if it is a duplicate.
func (v values) end(from int) values {
	binary.BigEndian.PutUint32(v.bytes[from:], uint32(len(v.bytes)-from-4))
	for at := v.from; at < from; {
		next := at + 4 + int(binary.BigEndian.Uint32(v.bytes[at:]))
		if bytes.Equal(v.bytes[at:next], v.bytes[from:]) {
			v.bytes = v.bytes[:from]
			return v
		}
		at = next
	}
	v.n++
	return v
}

// full reports whether there are so many values that others make no difference.
func (v *values) full() bool { return v.n > MaxKeys }

func (v values) add(s string) values {
	from := len(v.bytes)
	v.bytes = append(v.begin().bytes, s...)
	return v.end(from)
}

// appendValue appends the number of req's values of c, which can have at most one, and the value.
func (c *Characteristic) appendValue(b []byte, req *Request) []byte {
	switch c.Kind {
	case Host:
		return appendString(append(b, 0, 0, 0, 1), req.Host)
	case Method:
		return appendString(append(b, 0, 0, 0, 1), req.Method)
	case Label:
		if label, ok := c.Labels.table.Lookup(req.Addr); ok {
			return appendString(append(b, 0, 0, 0, 1), label)
		}
		return append(b, 0, 0, 0, 0)
	}
	addr, bits := req.client, req.bits
	if c.Kind == Network {
		addr, bits = c.network(req.Addr).Addr(), 0
	}
	if !addr.IsValid() {
		return append(b, 0, 0, 0, 0)
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
	return b
}

// collect adds req's values of c, which can have several, to v.
func (r *Rule) collect(v values, c *Characteristic, req *Request) values {
	switch c.Kind {
	case Path:
		return r.collectPaths(v, req)
	case Header:
		for _, value := range req.fields()[c.canonical] {
			if v.full() {
				break
			}
			v = v.add(value)
		}
		return v
	case Cookie:
		for _, line := range req.fields()["Cookie"] {
			v = v.collectPairs(line, c.Name, true)
		}
		return v
	default:
		return v.collectPairs(req.Query, c.Name, false)
	}
}

// collectPaths adds the forms of req's path that r matches.
func (r *Rule) collectPaths(v values, req *Request) values {
	forms, n := req.target.read(r.PathSyntax)
	for _, form := range forms[:n] {
		if !r.matchForm(req, form) {
			continue
		}
		from := len(v.bytes)
		if v = v.begin(); r.PathSyntax.ExactCase {
			v.bytes = append(v.bytes, form...)
		} else {
			v.bytes = appendFolded(v.bytes, form)
		}
		v = v.end(from)
	}
	return v
}

// appendCookie appends the decoded value of a cookie to dst. PHP, Express, Rack and ASP.NET decode percent
// escapes. Rack also decodes plus signs, and Python decodes backslash escapes within quotes. Spellings
// that one of them reads as the same value become the same bytes.
func appendCookie(dst []byte, value string) []byte {
	quoted := len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"'
	if quoted {
		value = value[1 : len(value)-1]
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

// isBlank reports whether Python and JavaScript treat c as a blank in Latin-1.
func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\x85' || c == '\xa0' }

// trimBlanks returns s without the surrounding blanks.
func trimBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// collectPairs adds the decoded values of the cookies in a header, or else the parameters in a query, with a name.
func (v values) collectPairs(text, name string, cookies bool) values {
	var room [MaxKeys]string
	seen, separator := room[:0], "&" // telling that a value is repeated is cheaper than decoding it
	if cookies {
		separator = ";"
	}
	for text != "" && !v.full() {
		if text[0] == separator[0] || cookies && isBlank(text[0]) {
			text = text[1:]
			continue
		}
		value, ok := cutName(text, name, separator[0], cookies)
		if !ok {
			_, text, _ = strings.Cut(text, separator)
			continue
		}
		value, text, _ = strings.Cut(strings.TrimPrefix(value, "="), separator)
		if slices.Contains(seen, value) {
			continue
		}
		if len(seen) < cap(seen) {
			seen = append(seen, value)
		}
		from := len(v.bytes)
		if v = v.begin(); cookies {
			v.bytes = appendCookie(v.bytes, trimBlanks(value))
		} else {
			v.bytes = decode(v.bytes, value, true)
		}
		v = v.end(from)
	}
	return v
}

// cutName returns what follows the name of the first pair in text, and reports whether that is name.
func cutName(text, name string, separator byte, cookies bool) (rest string, ok bool) {
	for i := range len(name) {
		if text == "" || text[0] == '=' || text[0] == separator {
			return "", false
		}
		c := text[0]
		if cookies {
			text = text[1:]
		} else {
			c, text = decodeByte(text, true)
		}
		if c != name[i] {
			return "", false
		}
	}
	for cookies && text != "" && isBlank(text[0]) {
		text = text[1:]
	}
	return text, text == "" || text[0] == '=' || text[0] == separator
}
