package rule

import (
	"iter"
	"net/netip"
)

// A Characteristic is a property by whose values requests are counted.
type Characteristic struct {
	Kind Kind

	// Name is the name of the header (in lower case), cookie or query parameter, the name of the labels,
	// the lengths of networks (24/48 for IPv4 and IPv6), or the alternatives. Other kinds have no name.
	Name string

	// Skip says that the rule does not apply to requests without a value. If false, all of them share one
	// count. It is always true for labels.
	Skip bool

	// First has the alternatives of the kind First. A request is counted by the first of them that it has
	// a value for or, if there is none, by the last.
	First []Characteristic

	// Labels has the labels of the kind Label.
	Labels *NetworkSet

	field      string // with the value, as net/http spells it, if it is in the header
	ipv4, ipv6 uint8  // lengths of networks
}

// Same reports whether c and o are the same property.
func (c Characteristic) Same(o Characteristic) bool { return c.Kind == o.Kind && c.Name == o.Name }

// Field returns the name of the field with the value, as net/http spells it, or "" if it is not in the header.
func (c *Characteristic) Field() string { return c.field }

// String returns the characteristic as spelled in rules files: ip, header:x-api-key.
func (c Characteristic) String() string {
	if !c.Kind.Named() {
		return c.Kind.String()
	}
	return c.Kind.String() + ":" + c.Name
}

// Width orders rules by how many clients share a key. It is 0 if each client has its own keys, greater for
// larger networks and for labels, and greatest if all clients share a key.
func (r *Rule) Width() int {
	width := widest
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		width = min(width, kinds[c.Kind].width-int(c.ipv4))
	}
	return width
}

const widest = 35

// Parent reports whether all clients of a network or label share a key of r.
func (r *Rule) Parent() bool {
	width := r.Width()
	return 0 < width && width < widest
}

// CountsBy reports whether the keys of r depend on characteristics of kind k.
func (r *Rule) CountsBy(k Kind) bool { return hasKind(r.Characteristics, k) }

// hasKind reports whether one of list, or an alternative of one, is of kind k.
func hasKind(list []Characteristic, k Kind) bool {
	for i := range list {
		if list[i].Kind == k || hasKind(list[i].First, k) {
			return true
		}
	}
	return false
}

// Leaves yields the characteristics of r, with alternatives in place of those of the kind First.
func (r *Rule) Leaves() iter.Seq[*Characteristic] {
	return func(yield func(*Characteristic) bool) {
		for i := range r.Characteristics {
			c := &r.Characteristics[i]
			if c.Kind != First && !yield(c) {
				return
			}
			for j := range c.First {
				if !yield(&c.First[j]) {
					return
				}
			}
		}
	}
}

// network returns the network of addr, or the zero Prefix if addr is invalid.
func (c *Characteristic) network(addr netip.Addr) netip.Prefix {
	bits := c.ipv6
	if addr.Is4() {
		bits = c.ipv4
	}
	prefix, _ := addr.Prefix(int(bits))
	return prefix
}

// Bits returns the lengths of c's networks, or 0 if c is of another kind.
func (c *Characteristic) Bits() (ipv4, ipv6 int) { return int(c.ipv4), int(c.ipv6) }
