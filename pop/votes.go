package pop

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/counter/memcached"
)

const (
	// outAfter is how long most nodes must vote against a shard before it leaves the ring, so
	// that a short silence moves no keys.
	outAfter = time.Second

	// inAfter is how long the votes must have ended before the shard comes back. It doubles
	// each time the shard leaves again within calm, up to maxInAfter.
	inAfter    = 3 * time.Second
	maxInAfter = time.Minute
	calm       = 5 * time.Minute

	// maxVotes is the maximum number of shards that one node votes against.
	maxVotes = 64
)

// A health is how a node finds a shard at one moment.
type health struct {
	down bool // the shard failed and has not answered since
}

// bad reports whether a node that finds a shard so votes against it.
func (h health) bad() bool { return h.down }

// votes decide which shards are out of the ring: those that an operator drains, and those that
// most live nodes vote against. All nodes hear the same votes, so they decide alike within
// voteInterval. A node that cannot reach a shard which most others reach does not change the
// ring.
//
// votes are plain state: no method blocks, reads a clock or calls anything back. The zero value
// has no shards. They are not safe for concurrent use.
type votes struct {
	shards    []string // addresses
	standings map[string]*standing
	drains    map[uint64]drain // by voteFor
	turn      int              // place in shards of the drain that a status had no room for
}

// A standing is what the votes have decided about a shard.
type standing struct {
	bad     bool      // most nodes vote against it
	since   time.Time // when bad changed last
	out     bool
	outAt   time.Time // when it left the ring last
	inAfter time.Duration
}

// replace sets the shards. Those that were there before keep their standing, and all keep their
// drains.
func (v *votes) replace(shards []string) {
	standings := map[string]*standing{}
	for _, addr := range shards {
		if standings[addr] = v.standings[addr]; standings[addr] == nil {
			standings[addr] = new(standing)
		}
	}
	v.shards, v.standings = shards, standings
}

// voteFor returns the name of a shard in a status.
func voteFor(addr string) uint64 { return xxhash.Sum64String(addr) }

// count counts the votes at now: for each live node, this one included, the shards that it votes
// against. A tie leaves a shard in the ring.
func (v *votes) count(against [][]uint64, now time.Time) {
	for _, addr := range v.shards {
		n := 0
		for _, of := range against {
			if slices.Contains(of, voteFor(addr)) {
				n++
			}
		}
		s := v.standings[addr]
		if bad := 2*n > len(against); bad != s.bad || s.since.IsZero() {
			s.bad, s.since = bad, now
		}
		switch lasted := now.Sub(s.since); {
		case s.bad && !s.out && lasted >= outAfter:
			s.out = true
			if s.inAfter = min(2*s.inAfter, maxInAfter); s.outAt.IsZero() || now.Sub(s.outAt) > calm {
				s.inAfter = inAfter
			}
			s.outAt = now
		case !s.bad && s.out && lasted >= s.inAfter:
			s.out = false
		}
	}
}

// left returns how many of shards are neither drained nor down, and how many are drained.
func (v *votes) left(shards []*memcached.Client) (left, drained int) {
	for _, s := range shards {
		if v.drains[voteFor(s.Addr())].on {
			drained++
		} else if !healthOf(s).bad() {
			left++
		}
	}
	return left, drained
}

// out returns the addresses of the shards that are to be out of the ring, in order. Operators may
// empty the ring, votes do not: no shard would be gained.
func (v *votes) out() []string {
	var out, voted []string
	for _, addr := range v.shards {
		switch {
		case v.drains[voteFor(addr)].on:
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
