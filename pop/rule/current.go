package rule

import (
	"slices"
	"strings"
)

// Current returns the rule of s with the ID and the characteristics of r, which may be of an older set, or
// nil if there is none. A rule with the limits of a key keeps them until the key's next request: see
// [Set.Override].
func (s *Set) Current(r *Rule) *Rule {
	base := r.Base()
	if base.Index < len(s.rules) && s.rules[base.Index] == base {
		return r
	}
	now := s.Rule(r.ID)
	if now == nil || !slices.EqualFunc(now.Characteristics, r.Characteristics, Characteristic.Same) {
		return nil
	}
	if r != base && now.Overrides != "" {
		return r
	}
	return now
}

// Rule returns the rule with an ID, or nil.
func (s *Set) Rule(id string) *Rule {
	if len(s.rules) == 0 {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.byID(), id, func(at uint32, id string) int {
		return strings.Compare(s.rules[at].ID, id)
	})
	if !found {
		return nil
	}
	return s.rules[s.byID()[i]]
}

// sortByID returns the indexes of the rules in the order of their IDs.
func (s *Set) sortByID() []uint32 {
	order := make([]uint32, len(s.rules))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return strings.Compare(s.rules[a].ID, s.rules[b].ID)
	})
	return order
}
