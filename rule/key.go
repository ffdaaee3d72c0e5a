package rule

import (
	"bytes"
	"encoding/binary"
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
	b, combinations := r.appendCombination(buf, req, 0)
	if combinations > MaxKeys {
		b, _ = r.appendCombination(buf, req, several)
		combinations = 1
	}
	if combinations > 1 {
		ends := [MaxKeys]int{len(b) - len(buf)}
		for i := 1; i < combinations; i++ {
			b, _ = r.appendCombination(b, req, i)
			ends[i] = len(b) - len(buf)
		}
		for _, end := range ends[:combinations] {
			b = binary.BigEndian.AppendUint32(b, uint32(end))
		}
	}
	return Keys{b[len(buf):len(b):len(b)], combinations}
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

// several, in place of the index of a combination, means the single key for all of them.
const several = -1

// appendCombination appends the key of the ith combination of values to b, and returns the number of
// combinations: 0 if r does not count req, and any number above MaxKeys if there are more.
func (r *Rule) appendCombination(b []byte, req *Request, i int) (_ []byte, combinations int) {
	b = appendString(append(b, keyVersion), r.ID)
	combinations = 1
	for at := range r.Characteristics {
		c := &r.Characteristics[at]
		b = appendString(append(b, byte(c.Kind)), c.Name)
		if c.Kind == First {
			alternative := r.choose(b, c, req)
			b, c = append(b, byte(alternative)), &c.First[alternative]
		}
		if !c.Kind.several() {
			var any bool
			if b, any = c.appendValue(b, req); !any && c.Skip {
				return b, 0
			}
			continue
		}
		number := len(b)
		v := r.collect(values{append(b, 0, 0, 0, 0), number + 4, 0}, c, req)
		b = v.bytes
		n := uint32(v.n)
		switch {
		case v.n == 0 && c.Skip:
			return b, 0
		case v.n > 1 && i == several:
			b, n = b[:v.from], severalValues
		case v.n > 1:
			b, n = v.only(i%v.n), 1
			i /= v.n
		}
		binary.BigEndian.PutUint32(b[number:], n)
		combinations = min(combinations*max(1, v.n), MaxKeys+1)
	}
	return b, combinations
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

// end ends the value whose length is at from. It removes the value if it is a duplicate, or if there are
// too many already.
func (v values) end(from int) values {
	binary.BigEndian.PutUint32(v.bytes[from:], uint32(len(v.bytes)-from-4))
	if v.n > MaxKeys {
		v.bytes = v.bytes[:from]
		return v
	}
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

// only returns bytes with only the ith value.
func (v values) only(i int) []byte {
	next := func(at int) int { return at + 4 + int(binary.BigEndian.Uint32(v.bytes[at:])) }
	at := v.from
	for range i {
		at = next(at)
	}
	return append(v.bytes[:v.from], v.bytes[at:next(at)]...)
}

func (v values) add(s string) values {
	from := len(v.bytes)
	v.bytes = append(v.begin().bytes, s...)
	return v.end(from)
}

// appendValue appends the number of req's values of c, which can have at most one, and the value. It
// reports whether there is one.
func (c *Characteristic) appendValue(b []byte, req *Request) (_ []byte, any bool) {
	switch c.Kind {
	case Host:
		return appendString(append(b, 0, 0, 0, 1), req.Host), true
	case Method:
		return appendString(append(b, 0, 0, 0, 1), req.Method), true
	case Label:
		if label, ok := c.Labels.table.Lookup(req.Addr); ok {
			return appendString(append(b, 0, 0, 0, 1), label), true
		}
		return append(b, 0, 0, 0, 0), false
	}
	addr, bits := req.client, req.bits
	if c.Kind == Network {
		addr, bits = c.network(req.Addr).Addr(), 0
	}
	if !addr.IsValid() {
		return append(b, 0, 0, 0, 0), false
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
	return b, true
}

// collect adds req's values of c, which can have several, to v.
func (r *Rule) collect(v values, c *Characteristic, req *Request) values {
	switch c.Kind {
	case Path:
		return r.collectPaths(v, req)
	case Header:
		for _, value := range req.Header[c.canonical] {
			v = v.add(value)
		}
		return v
	case Cookie:
		return collectCookies(v, req.Header["Cookie"], c.Name)
	default:
		return collectParameters(v, req.Query, c.Name)
	}
}

// collectPaths adds the forms of req's path that r matches.
func (r *Rule) collectPaths(v values, req *Request) values {
	for _, form := range req.target.read(r.PathSyntax) {
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

// collectCookies adds the values of cookies, decoded as origins may decode them.
func collectCookies(v values, lines []string, name string) values {
	for _, line := range lines {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(pair, "=")
			if trimBlanks(key) != name {
				continue
			}
			from := len(v.bytes)
			v.bytes = appendCookie(v.begin().bytes, trimBlanks(value))
			v = v.end(from)
		}
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

// trimBlanks returns s without the surrounding characters that Python and JavaScript treat as blanks in
// Latin-1.
func trimBlanks(s string) string {
	isBlank := func(c byte) bool { return c == ' ' || c == '\t' || c == '\x85' || c == '\xa0' }
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// collectParameters adds the decoded values of the query parameters whose decoded name is name.
func collectParameters(v values, query, name string) values {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if !decodesTo(key, name) {
			continue
		}
		from := len(v.bytes)
		v.bytes = decode(v.begin().bytes, value, true)
		v = v.end(from)
	}
	return v
}

// decodesTo reports whether the query-encoded s decodes to want.
func decodesTo(s, want string) bool {
	if len(s) < len(want) || len(s) > 3*len(want) {
		return false
	}
	i := 0
	for ; i < len(want) && s != ""; i++ {
		var c byte
		if c, s = decodeByte(s, true); c != want[i] {
			return false
		}
	}
	return i == len(want) && s == ""
}
