package rule

import (
	"net/netip"

	"github.com/cespare/xxhash/v2"
)

// Fingerprint returns what names r where only fields of fixed size travel: a hash of its ID and
// characteristics, as keys have them. It is never 0.
func (r *Rule) Fingerprint() uint64 {
	b := appendString(nil, r.ID)
	for _, c := range r.Characteristics {
		b = appendString(append(b, byte(c.Kind)), c.Name)
	}
	return max(1, xxhash.Sum64(b))
}

// ByFingerprint returns the rule with a fingerprint, or nil.
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

// HasClient reports whether the networks of r's match have addr, so that the rule may concern a request
// from there.
func (r *Rule) HasClient(addr netip.Addr) bool { return r.hasAddr(addr.Unmap()) }
