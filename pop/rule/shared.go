package rule

// Characteristics whose values many clients share: networks and labels. Also alternatives.

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

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
		}
	}
	return width
}

const widest = 35

// Parent reports whether r counts by network or label.
func (r *Rule) Parent() bool {
	width := r.Width()
	return 0 < width && width < widest
}

// leaves yields the characteristics of r, with alternatives in place of those of the kind First.
func (r *Rule) leaves() iter.Seq[*Characteristic] {
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

// networkBits reads the lengths of networks.
func (r *reader) networkBits(n *yaml.Node, c *Characteristic, text string) {
	ipv4, ipv6, both := strings.Cut(text, "/")
	bits := func(text string, low, high uint64) uint8 {
		number, err := strconv.ParseUint(text, 10, 8)
		if both = both && err == nil && number >= low && number <= high && strconv.FormatUint(number, 10) == text; !both {
			return 0
		}
		return uint8(number)
	}
	if c.ipv4, c.ipv6 = bits(ipv4, 1, 31), bits(ipv6, 1, 64); !both {
		r.Fail(n, "write network:24/48, with up to 31 bits for IPv4 and up to 64 for IPv6", "networks cannot have %s bits", strictyaml.Quote(text))
	}
	c.Name = text
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

// of returns the network of an address in text form.
func (c *Characteristic) of(text string) (netip.Prefix, error) {
	addr, err := netip.ParseAddr(text)
	return c.network(addr.Unmap()), err
}

// alternatives reads the alternatives of a characteristic of the kind First.
func (r *reader) alternatives(n *yaml.Node, c *Characteristic) {
	var names []string
	for _, each := range r.Sequence(n, "first", "write a list: [cookie:sid, ip]", "write [cookie:sid, ip]") {
		alternative, ok := r.characteristic(each)
		switch {
		case !ok:
		case alternative.Kind == First:
			r.Fail(each, "write all alternatives in one list", "first cannot contain first")
		case slices.ContainsFunc(c.First, alternative.Same):
			r.Fail(each, "remove one of them", "%s is listed twice", alternative)
		case len(names) == 255:
			r.Fail(each, "leave some of them out", "there are more than 255 alternatives")
		default:
			c.First, names = append(c.First, alternative), append(names, alternative.String())
		}
	}
	if len(names) == 1 {
		r.Fail(n, "add an alternative, or write this one without first", "first needs at least two alternatives")
	}
	c.Name = strings.Join(names, ",")
}

// choose returns the index of the alternative of c by which req is counted. It uses the memory after b.
func (r *Rule) choose(b []byte, c *Characteristic, req *Request) int {
	last := len(c.First) - 1
	for i := range c.First[:last] {
		each := &c.First[i]
		if each.Kind.several() {
			if r.collect(values{b, len(b), 0}, each, req).n > 0 {
				return i
			}
		} else if _, any := each.appendValue(b, req); any {
			return i
		}
	}
	return last
}
