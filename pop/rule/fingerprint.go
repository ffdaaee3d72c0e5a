package rule

import "github.com/cespare/xxhash/v2"

// Fingerprint returns a hash of r's ID and characteristics, which identifies r in messages with fields of
// fixed size. It is never 0.
func (r *Rule) Fingerprint() uint64 {
	b := appendString(nil, r.ID)
	for _, c := range r.Characteristics {
		b = appendString(append(b, byte(c.Kind)), c.Name)
	}
	return max(1, xxhash.Sum64(b))
}

// ByFingerprint returns the rule with a fingerprint, or nil if there is none.
func (s *Set) ByFingerprint(fingerprint uint64) *Rule {
	if len(s.rules) == 0 {
		return nil
	}
	return s.byFingerprint()[fingerprint]
}

// indexFingerprints returns the rules by their fingerprints.
func (s *Set) indexFingerprints() map[uint64]*Rule {
	index := make(map[uint64]*Rule, len(s.rules))
	for _, r := range s.rules {
		index[r.Fingerprint()] = r
	}
	return index
}
