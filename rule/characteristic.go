package rule

import (
	"fmt"
	"iter"
	"net/netip"
	"net/textproto"
	"strings"
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

	canonical  string // Name as net/http spells a header
	ipv4, ipv6 uint8  // lengths of networks
}

// A Kind is the kind of a characteristic. Its number is part of every key, so a new kind goes to the end of the list.
//
// A new kind is a constant and a name here, and what Named, Chosen, several and NewCharacteristic say about it. Then
// TestCharacteristics, in the root of the module and in proxy/envoy, and TestUnknownRules of load/judge name what lacks
// it: Width, the values in key.go and value.go, [Set.use] if it reads a header, about.go, schema.json and the forms in
// package file, docs, the judge. If requests in logs have its value, analysis/properties.go reads it.
type Kind uint8

const (
	IP Kind = iota + 1
	Host
	Path
	Method
	Header
	Cookie
	Query
	Label
	Network
	First
)

var kindNames = [...]string{IP: "ip", Host: "host", Path: "path", Method: "method", Header: "header", Cookie: "cookie",
	Query: "query", Label: "label", Network: "network", First: "first"}

// KindNames returns the names of all kinds, by their numbers: the first is empty.
func KindNames() []string { return kindNames[:] }

// String returns the kind as spelled in rules files.
func (k Kind) String() string { return kindNames[k] }

// Named reports whether characteristics of kind k have a name.
func (k Kind) Named() bool { return k >= Header }

// Chosen reports whether clients choose the values of characteristics of kind k.
func (k Kind) Chosen() bool { return k == Header || k == Cookie || k == Query }

// several reports whether a request can have several values of a characteristic of kind k.
func (k Kind) several() bool { return k == Path || k.Chosen() }

// Same reports whether c and o are the same property.
func (c Characteristic) Same(o Characteristic) bool { return c.Kind == o.Kind && c.Name == o.Name }

// String returns the characteristic as spelled in rules files: ip, header:x-api-key.
func (c Characteristic) String() string {
	if !c.Kind.Named() {
		return c.Kind.String()
	}
	return c.Kind.String() + ":" + c.Name
}

// NewCharacteristic returns the characteristic of a kind with a name, which is "" for kinds without one. ok
// is false if the name is invalid for the kind. NewCharacteristic does not make labels or alternatives.
func NewCharacteristic(kind Kind, name string) (c Characteristic, ok bool) {
	c = Characteristic{Kind: kind, Name: name}
	switch kind {
	case IP, Host, Path, Method:
		ok = name == ""
	case Header: // the host is a separate characteristic
		c.Name, c.canonical = strings.ToLower(name), textproto.CanonicalMIMEHeaderKey(name)
		ok = name != "" && isToken(name) && c.Name != "host"
	case Cookie:
		ok = name != "" && isToken(name)
	case Query:
		ok = name != ""
	case Network:
		_, _ = fmt.Sscanf(name, "%d/%d", &c.ipv4, &c.ipv6)
		ok = 1 <= c.ipv4 && c.ipv4 <= 32 && 1 <= c.ipv6 && c.ipv6 <= 64 && name == fmt.Sprintf("%d/%d", c.ipv4, c.ipv6)
	}
	return c, ok
}

// Width orders rules by how many clients share a key. It is 0 if each client has its own keys, greater for
// larger networks and for labels, and greatest if all clients share a key.
func (r *Rule) Width() int {
	width := widest
	for i := range r.Characteristics {
		switch c := &r.Characteristics[i]; c.Kind {
		case IP, Header, Cookie, Query, First:
			return 0
		case Network:
			width = min(width, 33-int(c.ipv4))
		case Label:
			width = min(width, widest-1)
		case Host, Path, Method:
		default:
			panic("rule: unknown kind of characteristic")
		}
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
func (r *Rule) CountsBy(k Kind) bool { return kinds(r.Characteristics)&(1<<k) != 0 }

// kinds returns the kinds of characteristics, as a bit set, with those of alternatives in place of First.
func kinds(characteristics []Characteristic) (set uint32) {
	for i := range characteristics {
		if c := &characteristics[i]; c.Kind == First {
			set |= kinds(c.First)
		} else {
			set |= 1 << c.Kind
		}
	}
	return set
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
