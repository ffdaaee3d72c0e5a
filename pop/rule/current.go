package rule

import (
	"slices"
	"strings"
)

// Current returns the rule of s that counts what r does, which may be a rule of an older
// set: the one with its ID and its characteristics. It is nil if there is none.
func (s *Set) Current(r *Rule) *Rule {
	if r.Index < len(s.rules) && s.rules[r.Index] == r {
		return r
	}
	if len(s.rules) == 0 {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.byID(), r.ID, func(at uint32, id string) int {
		return strings.Compare(s.rules[at].ID, id)
	})
	if !found {
		return nil
	}
	now := s.rules[s.byID()[i]]
	same := func(a, b Characteristic) bool { return a.Kind == b.Kind && a.Name == b.Name }
	if !slices.EqualFunc(now.Characteristics, r.Characteristics, same) {
		return nil
	}
	return now
}

// sortByID returns the places of the rules in the order of their IDs.
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
