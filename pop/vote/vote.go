// Package vote decides which shards are out of the ring: those that an operator drains, and those that most live nodes
// consider down. All nodes hear the same votes and orders, so they decide alike. A node that cannot reach a shard that
// most others reach does not change the ring.
package vote

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// OutAfter is how long most nodes must vote against a shard before it leaves the ring, so
	// that a short silence moves no keys.
	OutAfter = time.Second

	// InAfter is how long the votes must have ended before the shard comes back. It doubles
	// each time the shard leaves again within calm, up to maxInAfter.
	InAfter    = 3 * time.Second
	maxInAfter = time.Minute
	calm       = 5 * time.Minute
)

// Votes holds what votes and orders have decided about a PoP's shards. It is plain state: no method blocks, reads a
// clock or calls back. The zero value has no shards. It is not safe for concurrent use.
type Votes struct {
	shards    []string // addresses
	standings map[string]*standing
	drains    map[uint64]drain // by ID
	turn      int              // index in shards of the first drain that did not fit
}

// A standing is the result of the votes about a shard.
type standing struct {
	bad     bool      // most nodes vote against it
	since   time.Time // when bad last changed
	out     bool
	outAt   time.Time // when it last left the ring
	inAfter time.Duration
}

// ID returns the ID of a shard in messages between nodes.
func ID(addr string) uint64 { return xxhash.Sum64String(addr) }

// Replace sets the shards, by address. Shards that stay keep their standing. Drains are kept, even
// those of shards that leave.
func (v *Votes) Replace(shards []string) {
	standings := map[string]*standing{}
	for _, addr := range shards {
		if standings[addr] = v.standings[addr]; standings[addr] == nil {
			standings[addr] = new(standing)
		}
	}
	v.shards, v.standings = shards, standings
}

// Count counts the votes at now. against has an element for each live node, this one included: the
// IDs of the shards that it votes against. A tie is in favor of the shard.
func (v *Votes) Count(against [][]uint64, now time.Time) {
	for _, addr := range v.shards {
		n := 0
		for _, ids := range against {
			if slices.Contains(ids, ID(addr)) {
				n++
			}
		}
		s := v.standings[addr]
		if bad := 2*n > len(against); bad != s.bad || s.since.IsZero() {
			s.bad, s.since = bad, now
		}
		switch lasted := now.Sub(s.since); {
		case s.bad && !s.out && lasted >= OutAfter:
			s.out = true
			s.inAfter = min(2*s.inAfter, maxInAfter)
			if s.outAt.IsZero() || now.Sub(s.outAt) > calm {
				s.inAfter = InAfter
			}
			s.outAt = now
		case !s.bad && s.out && lasted >= s.inAfter:
			s.out = false
		}
	}
}

// Out returns the sorted addresses of the shards to keep out of the ring. Operators may empty the
// ring; votes may not, since that would gain nothing.
func (v *Votes) Out() []string {
	var out, voted []string
	for _, addr := range v.shards {
		switch {
		case v.Drained(addr):
			out = append(out, addr)
		case v.standings[addr].out:
			voted = append(voted, addr)
		}
	}
	if len(out)+len(voted) < len(v.shards) {
		out = append(out, voted...)
	}
	slices.Sort(out)
	return out
}
