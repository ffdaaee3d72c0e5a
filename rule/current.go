package rule

// Rules of other sets, and of other nodes.

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Current returns the rule of s with the ID and the characteristics of r, which may belong to an older set, or
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
	return s.byID()[id]
}

// Fingerprint returns a hash of r's ID and characteristics, which identifies r in messages with fields of
// fixed size. It is never 0.
func (r *Rule) Fingerprint() uint64 {
	if r.fingerprint != 0 {
		return r.fingerprint
	}
	b := appendString(nil, r.ID)
	for _, c := range r.Characteristics {
		b = appendString(append(b, byte(c.Kind)), c.Name)
	}
	return max(2, xxhash.Sum64(b)) // 0 and 1 have other meanings in records
}

// ByFingerprint returns the rule with a fingerprint, or nil if there is none.
func (s *Set) ByFingerprint(fingerprint uint64) *Rule {
	if len(s.rules) == 0 {
		return nil
	}
	return s.byFingerprint()[fingerprint]
}
