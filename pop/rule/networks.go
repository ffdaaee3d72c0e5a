package rule

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// A NetworkSet is a named set of networks. Rules match client addresses by it or, if it assigns labels to
// its networks, count by label. The longest network that contains an address determines its label.
type NetworkSet struct {
	Name     string
	File     string         // the file with the networks; empty if they are in the rules file
	Prefixes []netip.Prefix // as listed; nil if they have labels

	table bart.Table[string] // labels, or empty strings
}

// add adds a network, with a label unless that is empty.
func (s *NetworkSet) add(prefix netip.Prefix, label string) {
	if label == "" {
		s.Prefixes = append(s.Prefixes, prefix)
	}
	s.table.Insert(prefix, label)
}

// All yields each network with its label.
func (s *NetworkSet) All() iter.Seq2[netip.Prefix, string] { return s.table.All() }

// addr returns an address that has a label.
func (s *NetworkSet) addr(label string) (netip.Addr, bool) {
	for prefix := range s.All() {
		if of, _ := s.table.Lookup(prefix.Addr()); of == label {
			return prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func (m *Match) hasAddr(addr netip.Addr) bool {
	return len(m.Networks) == 0 || slices.ContainsFunc(m.Networks, func(s *NetworkSet) bool { return s.table.Contains(addr) })
}

// HasClient reports whether r's networks contain addr, so that r can apply to requests from there.
func (r *Rule) HasClient(addr netip.Addr) bool { return r.hasAddr(addr.Unmap()) }

// NetworkSets returns the named sets of networks, in the order of the files.
func (s *Set) NetworkSets() []*NetworkSet { return s.networkSets }

// LabelSets returns the named sets of networks with labels, in the order of the files.
func (s *Set) LabelSets() []*NetworkSet { return s.labelSets }
