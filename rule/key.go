package rule

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/edgelimit/edge/counter"
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
// The values of path are the forms in which origins may read the path and which r matches. If these have more
// than 512 bytes together, they count as more than MaxKeys. req must be canonical. Keys allocates only to grow buf, or
// if origins may read the path in several ways.
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

// combine appends to b a key for each combination of values, or one key if there are too many. From start on, b has the
// form of a key, but with all values.
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
			at += 1 + 4 + len(c.Name)
			if c.Kind == First {
				at++
			}
			number, n, chosen := at, int(binary.BigEndian.Uint32(b[at:])), []byte(nil)
			at += 4
			for k := range n {
				begin := at
				at += 4 + int(binary.BigEndian.Uint32(b[at:]))
				if k == i%n {
					chosen = b[begin:at]
				}
			}
			if n < 2 {
				continue
			}
			b = append(b, b[copied:number]...)
			copied = at
			if several {
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

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// A list counts the distinct values of a characteristic that are appended to a key, or for a condition. Once it has
// more than most, other values make no difference.
type list struct {
	from  int // where the values begin, each after its length
	n     int
	most  int
	long  int // maximum size of a line of a header, or 0
	read  int // cookies or parameters
	pairs int // those with the name, or lines of a header
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

// appendAddr appends the number of addresses, 0 if addr is invalid and else 1, and then addr, which has no zone. Unless
// bits is 0, it follows as the length of the network.
func appendAddr(b []byte, addr netip.Addr, bits uint8) (_ []byte, n int) {
	if !addr.IsValid() {
		return append(b, 0, 0, 0, 0), 0
	}
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0)
	from := len(b)
	b, _ = addr.AppendBinary(b)
	if bits != 0 {
		b = append(b, bits)
	}
	b[from-1] = byte(len(b) - from)
	return b, 1
}

// maxForms is the maximum size of several forms of a path, with their lengths, that are counted separately.
const maxForms = 512

// appendPaths appends the forms of req's path that r matches.
func (r *Rule) appendPaths(b []byte, l *list, req *Request) []byte {
	req.searched = 0
	req.target.find(r.PathSyntax, false, func(form string) bool {
		if !r.matchForm(req, form) {
			return false
		}
		begin := len(b)
		b = append(b, 0, 0, 0, 0)
		if r.PathSyntax.ExactCase {
			b = append(b, form...)
		} else {
			b = appendFolded(b, form)
		}
		if b = l.end(b, begin); l.n > 1 && len(b)-l.from > maxForms {
			b = l.overflow(b)
		}
		return l.n > l.most
	})
	return b
}

// Overrides are the keys of a rule that have limits of their own. They must not be modified once they are
// part of a Set.
type Overrides struct {
	base   *Rule
	secret counter.Secret         // not used for anything else, so that clients cannot choose colliding keys
	plans  map[counter.Key]uint16 // by key, an index into rules
	rules  []*Rule                // copies of base with other limits
}

// NewOverrides gives r overrides with room for n keys.
func NewOverrides(r *Rule, n int) *Overrides {
	secret, err := counter.NewSecret(rand.Text())
	if err != nil {
		panic("rule: a random text is too short to be a secret")
	}
	r.overrides = &Overrides{base: r, secret: secret, plans: make(map[counter.Key]uint16, n)}
	return r.overrides
}

// AddPlan adds a plan with the given limits, whose periods must be those of the rule's limits, and returns
// its index. It returns false if there are too many plans.
func (o *Overrides) AddPlan(limits []Limit) (plan uint16, ok bool) {
	if len(o.rules) > math.MaxUint16 {
		return 0, false
	}
	r := *o.base
	r.base, r.Limits = o.base, limits
	o.rules = append(o.rules, &r)
	return uint16(len(o.rules) - 1), true
}

// Add gives a key from [Rule.Keys] a plan. It returns false if the key already has one.
func (o *Overrides) Add(key []byte, plan uint16) bool {
	tag := o.secret.Tag(key)
	if _, twice := o.plans[tag]; twice {
		return false
	}
	o.plans[tag] = plan
	return true
}

// Base returns the rule as its file defines it: r itself, unless r is a copy with the limits of a key.
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// Override returns the rule that counts requests of r under a key from [Rule.Keys]: r, or r with the
// limits of the key in its overrides. Override does not allocate.
func (r *Rule) Override(key []byte) *Rule {
	if o := r.overrides; o != nil {
		if plan, found := o.plans[o.secret.Tag(key)]; found {
			return o.rules[plan]
		}
	}
	return r
}

// Overridden returns a copy of r for each set of limits in its overrides, and the number of keys in them.
func (r *Rule) Overridden() (plans []*Rule, keys int) {
	if r.overrides == nil {
		return nil, 0
	}
	return r.overrides.rules, len(r.overrides.plans)
}
