package rule

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// keyVersion begins every key; another encoding has another version.
const keyVersion = 1

// MaxKeys is how many keys a rule has for one request at most.
const MaxKeys = 4

// severalValues stands for the number of values where they are not counted one by one.
const severalValues = 1<<32 - 1

// Keys are the keys under which a rule counts a request. They are valid until the
// buffer that they were made in changes. They are small enough to be returned in registers.
type Keys struct {
	bytes []byte // a key; or several, and then where each ends, in 4 bytes
	n     int
}

// Len returns how many keys there are: none where the rule does not count the request.
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

// end returns where the ith of several keys ends.
func (k *Keys) end(i int) uint32 {
	return binary.BigEndian.Uint32(k.bytes[len(k.bytes)-4*(k.n-i):])
}

// Keys returns the bytes that tell r's counts for req from all others, in buf's memory. A
// request that has one value of each characteristic, or none, has one key; one that lacks
// a characteristic with Skip has none. If two requests have the same key, they have the
// same values of all characteristics of the same rule ID:
//
//	version ‖ rule ID ‖ for each characteristic: kind ‖ name ‖ number of values ‖ value
//
// Strings are preceded by their length; lengths and numbers are 4 bytes, big endian.
// The number of values is 0 where the request has none, so that a missing value is
// never an empty one, else 1.
//
// A request with several distinct values of characteristics has a key for each
// combination of them. If that were more than MaxKeys, it has a single key, in which the
// number of values of these characteristics is 0xffffffff and no value follows.
//
// The value of ip is the first address of the client's network, 4 or 16 bytes. Unless the network
// is an IPv4 /32 or an IPv6 /64, the number of its bits follows: the counts of a network must not
// become those of a client, on a node that is told another [ClientPrefix].
//
// After the name of a characteristic of the kind First, the index of the alternative that counts follows
// in a byte, and then that alternative's values. The value of network is its first address.
//
// The values of path are the forms in which an origin may read the path, as far as r
// concerns them. req must be canonical. Keys allocates to grow buf only, and where origins
// read the path in several ways.
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

// AppendKey appends the first of r's keys for req to dst, which is the only one unless req
// has several values of a characteristic. It reports whether there is one.
func (r *Rule) AppendKey(dst []byte, req *Request) (key []byte, counted bool) {
	keys := r.Keys(dst, req)
	if keys.n == 0 {
		return dst, false
	}
	return append(dst, keys.At(0)...), true
}

// several is in the place of the number of a combination, for the key that stands for all.
const several = -1

// appendCombination appends the key of the ith combination of values to b, and returns how
// many combinations there are: none where r does not count req, more than MaxKeys where it
// does not matter.
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

// values are distinct values, each preceded by its length, at the end of bytes. Their methods
// return what becomes of them, so that bytes can stay on the stack.
type values struct {
	bytes []byte
	from  int // where the first begins
	n     int // at most MaxKeys+1
}

// full reports whether further values do not matter.
func (v values) full() bool { return v.n > MaxKeys }

// begin begins a value, which is to be appended to bytes.
func (v values) begin() values {
	v.bytes = append(v.bytes, 0, 0, 0, 0)
	return v
}

// end ends the value whose length is at from.
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

// only returns bytes with the ith value alone.
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

// appendValue appends the number of req's values of c, which has one value at most, and the value. It
// reports whether there is one.
func (c *Characteristic) appendValue(b []byte, req *Request) (_ []byte, any bool) {
	switch c.Kind {
	case Host:
		return appendString(append(b, 0, 0, 0, 1), req.Host), true
	case Method:
		return appendString(append(b, 0, 0, 0, 1), req.Method), true
	case Label:
		if label, ok := c.labels.Of(req.Addr); ok {
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

// collect adds req's values of c, of which there may be several, to v.
func (r *Rule) collect(v values, c *Characteristic, req *Request) values {
	switch c.Kind {
	case Path:
		return r.collectPaths(v, req)
	case Header:
		for _, value := range req.Header[c.canonical] {
			if v = v.add(value); v.full() {
				break
			}
		}
		return v
	case Cookie:
		return collectCookies(v, req.Header["Cookie"], c.Name)
	default:
		return collectParameters(v, req.Query, c.Name)
	}
}

// collectPaths adds the forms of req's path that concern r.
func (r *Rule) collectPaths(v values, req *Request) values {
	for _, form := range req.target.read(r.PathSyntax) {
		if !r.concernsForm(req, form) {
			continue
		}
		from := len(v.bytes)
		if v = v.begin(); r.PathSyntax.ExactCase {
			v.bytes = append(v.bytes, form...)
		} else {
			v.bytes = appendFolded(v.bytes, form)
		}
		if v = v.end(from); v.full() {
			break
		}
	}
	return v
}

// collectCookies adds the values of the cookies called name, as origins may decode them.
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
			if v = v.end(from); v.full() {
				return v
			}
		}
	}
	return v
}

// appendCookie appends the value of a cookie to dst. PHP, Express, Rack and ASP.NET decode percent
// escapes, Rack plus signs as well, and Python what backslashes escape between quotes. Spellings
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

// trimBlanks returns s without the blanks around it, as Python and JavaScript see them in Latin-1.
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

// collectParameters adds the decoded values of the query parameters whose decoded name is
// name.
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
		if v = v.end(from); v.full() {
			break
		}
	}
	return v
}

// decodesTo reports whether the query-encoded s means want.
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
