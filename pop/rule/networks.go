package rule

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// A NetworkSet is a named set of networks, by which rules match client addresses.
type NetworkSet struct {
	Name     string
	File     string // the file with the networks; empty if they are in the rules file
	Prefixes []netip.Prefix

	table bart.Lite
}

func (s *NetworkSet) add(prefix netip.Prefix) {
	s.Prefixes = append(s.Prefixes, prefix)
	s.table.Insert(prefix)
}

func (m *Match) hasAddr(addr netip.Addr) bool {
	return len(m.Networks) == 0 || slices.ContainsFunc(m.Networks, func(s *NetworkSet) bool { return s.table.Contains(addr) })
}

// HasClient reports whether r's networks contain addr, so that r can apply to requests from there.
func (r *Rule) HasClient(addr netip.Addr) bool { return r.hasAddr(addr.Unmap()) }

// networkNames returns the names of the sets of m.
func (m *Match) networkNames() (names []string) {
	for _, s := range m.Networks {
		names = append(names, s.Name)
	}
	return names
}

// NetworkSets returns the named sets of networks, in the order of the files.
func (s *Set) NetworkSets() []*NetworkSet { return s.networkSets }
