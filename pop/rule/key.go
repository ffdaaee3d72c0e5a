package rule

import (
	"encoding/binary"
	"strings"
)

// keyVersion begins every key; another encoding has another version.
const keyVersion = 1

// AppendKey appends to dst the bytes that tell r's counts for req from all others,
// and reports whether r counts req at all: it does not where a characteristic with
// Skip is missing. Two requests have the same bytes exactly if they have the same
// values of all characteristics of the same rule ID:
//
//	version ‖ rule ID ‖ for each characteristic: kind ‖ name ‖ number of values ‖ values
//
// Strings are preceded by their length; lengths and numbers are 4 bytes, big endian.
// The number of values is 0 where the request has none, so that a missing value is
// never an empty one. The value of ip is the first address of the client's network, 4
// or 16 bytes. Unless the network is an IPv4 /32 or an IPv6 /64, the number of its bits
// follows: the counts of a network must not become those of a client, on a node that is
// told another [ClientPrefix]. req must be canonical. AppendKey allocates only to grow
// dst.
func (r *Rule) AppendKey(dst []byte, req *Request) (key []byte, counted bool) {
	dst = appendString(append(dst, keyVersion), r.ID)
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		dst = append(dst, byte(c.Kind))
		dst = appendString(dst, c.Name)
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		var n uint32
		if dst, n = c.appendValues(dst, req); n == 0 && c.Skip {
			return dst, false
		}
		binary.BigEndian.PutUint32(dst[at:], n)
	}
	return dst, true
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// appendValues appends req's values of c, each preceded by its length, and returns
// their number.
func (c *Characteristic) appendValues(dst []byte, req *Request) (_ []byte, n uint32) {
	switch c.Kind {
	case IP:
		if !req.client.IsValid() {
			return dst, 0
		}
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		if req.client.Is4() {
			a := req.client.As4()
			dst = append(dst, a[:]...)
		} else {
			a := req.client.As16()
			dst = append(dst, a[:]...)
		}
		if req.bits != 0 {
			dst = append(dst, req.bits)
		}
		dst[at+3] = byte(len(dst) - at - 4)
		return dst, 1
	case Host:
		return appendString(dst, req.Host), 1
	case Path:
		return appendString(dst, req.Path), 1
	case Method:
		return appendString(dst, req.Method), 1
	case Header:
		values := req.Header[c.canonical]
		for _, v := range values {
			dst = appendString(dst, v)
		}
		return dst, uint32(len(values))
	case Cookie:
		return appendCookies(dst, req.Header["Cookie"], c.Name)
	default:
		return appendParameters(dst, req.Query, c.Name)
	}
}

// appendCookies appends the values of the cookies called name, in their order, without
// the blanks and the pair of quotes that may surround them.
func appendCookies(dst []byte, lines []string, name string) (_ []byte, n uint32) {
	for _, line := range lines {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			k, v, _ := strings.Cut(pair, "=")
			if trimBlanks(k) != name {
				continue
			}
			v = trimBlanks(v)
			if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
				v = v[1 : len(v)-1]
			}
			dst = appendString(dst, v)
			n++
		}
	}
	return dst, n
}

func trimBlanks(s string) string {
	isBlank := func(c byte) bool { return c == ' ' || c == '\t' }
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// appendParameters appends the decoded values of the query parameters whose decoded
// name is name, in their order.
func appendParameters(dst []byte, query, name string) (_ []byte, n uint32) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		k, v, _ := strings.Cut(pair, "=")
		if !decodesTo(k, name) {
			continue
		}
		at := len(dst)
		dst = decode(append(dst, 0, 0, 0, 0), v, true)
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		n++
	}
	return dst, n
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
