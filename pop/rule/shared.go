package rule

// Characteristics whose values many clients share: networks and labels. Also alternatives.

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gaissmai/bart"
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

// checkShared refuses settings that contradict the number of clients that share a key.
func (r *reader) checkShared(n *yaml.Node, rule *Rule) {
	if len(rule.Characteristics) == 0 { // an error already
		return
	}
	shed := rule.Action == Shed
	if (shed || rule.MinClients > 0) && rule.Width() == 0 {
		what := "min_clients is"
		if shed {
			what = "action: shed is"
		}
		r.Fail(n, "count by network:24/48, by a label or by host", "%s for keys that many clients share, but this rule counts single clients", what)
	}
	if shed && rule.CountsAnswer() {
		r.Fail(n, "remove one of them: the origin does not answer refused requests", "a rule that counts by the origin's answer cannot have action: shed")
	}
	for _, l := range rule.Limits {
		if shed && l.SubWindows > 1 {
			r.Fail(n, "leave sub_windows out: their counts end too soon above the threshold", "a rule with sub_windows cannot have action: shed")
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

// A LabelSet assigns labels to addresses. The longest prefix that contains an address determines its label.
type LabelSet struct {
	Name   string
	File   string
	labels []string
	table  bart.Table[uint32] // index in labels
}

// Of returns the label of addr. It does not allocate.
func (s *LabelSet) Of(addr netip.Addr) (label string, ok bool) {
	i, ok := s.table.Lookup(addr)
	if !ok {
		return "", false
	}
	return s.labels[i], true
}

// All yields each prefix of the file with its label.
func (s *LabelSet) All() iter.Seq2[netip.Prefix, string] {
	return func(yield func(netip.Prefix, string) bool) {
		for prefix, i := range s.table.All() {
			if !yield(prefix, s.labels[i]) {
				return
			}
		}
	}
}

// addr returns an address that has a label.
func (s *LabelSet) addr(label string) (netip.Addr, bool) {
	for prefix, its := range s.All() {
		if its != label {
			continue
		}
		if of, _ := s.Of(prefix.Addr()); of == label {
			return prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// LabelSets returns the sets of labels.
func (s *Set) LabelSets() []*LabelSet { return s.labelSets }
