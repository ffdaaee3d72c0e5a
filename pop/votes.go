package pop

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/gossip"
)

const (
	// voteInterval is how often the votes are counted.
	voteInterval = 250 * time.Millisecond

	// outAfter is for how long most nodes must find a shard down before it goes out of the
	// ring, so that a short silence moves no keys.
	outAfter = time.Second

	// inAfter is for how long they must find it up before it comes back. It doubles each
	// time that the shard goes out again within calm, up to maxInAfter.
	inAfter    = 3 * time.Second
	maxInAfter = time.Minute
	calm       = 5 * time.Minute

	// failures is how many probes are sent to a shard that another node finds down: as
	// many as open a breaker by default.
	failures = 3

	// maxVotes is how many shards a status says to be down, at most.
	maxVotes = 64
)

// votes decide which shards are out of the ring: those that most live nodes find down. All
// nodes hear the same votes, and so decide alike within their interval. A node that cannot
// reach a shard which most others reach goes on from what it knows.
type votes struct {
	set    func(shards []*counter.Shard, out ...string) error
	logger *slog.Logger
	inRing *prometheus.GaugeVec
	said   chan struct{} // holds at most one: an operator has drained a shard here

	mu     sync.Mutex       // guards what follows
	shards []*counter.Shard // that there are
	votes  map[string]*vote // by address
	drains map[uint64]drain // by shard
	turn   int              // place in shards of the drain that a status had no room for
	ring   string           // as it was set, to notice changes
	out    []string         // as it was set
}

// A vote is what became of a shard.
type vote struct {
	bad     bool      // most nodes find it down
	since   time.Time // when that began, or ended
	out     bool
	outAt   time.Time // when it went out last
	inAfter time.Duration
}

func newVotes(set func([]*counter.Shard, ...string) error, logger *slog.Logger, inRing *prometheus.GaugeVec) *votes {
	return &votes{set: set, logger: logger, inRing: inRing, said: make(chan struct{}, 1), votes: map[string]*vote{}, drains: map[uint64]drain{}}
}

// replace says which shards there are, in a slice that is not changed.
func (v *votes) replace(shards []*counter.Shard) {
	v.mu.Lock()
	defer v.mu.Unlock()
	votes := map[string]*vote{}
	for _, s := range shards {
		if votes[s.Addr()] = v.votes[s.Addr()]; votes[s.Addr()] == nil {
			votes[s.Addr()] = new(vote)
		}
	}
	for _, s := range v.shards {
		if votes[s.Addr()] == nil {
			v.inRing.DeleteLabelValues(s.Addr())
		}
	}
	v.shards, v.votes = shards, votes
	v.applyLocked()
}

// all returns the shards that there are.
func (v *votes) all() []*counter.Shard {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shards
}

// voteFor returns what a shard is called in a status.
func voteFor(s *counter.Shard) uint64 { return xxhash.Sum64String(s.Addr()) }

// down returns the shards that this node finds down.
func (v *votes) down() (all []uint64) {
	for _, s := range v.all() {
		if s.Down() && len(all) < maxVotes {
			all = append(all, voteFor(s))
		}
	}
	return all
}

// append appends this node's votes, and which shards are drained, to a status.
func (v *votes) append(status []byte) []byte {
	down := v.down()
	status = append(status, byte(len(down)))
	for _, shard := range down {
		status = binary.BigEndian.AppendUint64(status, shard)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.appendDrainsLocked(status, gossip.MaxStatus)
}

// read returns the shards that another node finds down by what append appended there, and
// takes in which are drained.
func (v *votes) read(status []byte) (down []uint64) {
	n := int(status[0])
	for status = status[1:]; n > 0 && len(status) >= 8; n-- {
		down, status = append(down, binary.BigEndian.Uint64(status)), status[8:]
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n == 0 {
		v.readDrainsLocked(status)
	}
	return down
}

// run counts the votes by clock until ctx is done. others returns those of the other
// live nodes.
func (v *votes) run(ctx context.Context, clock func() time.Time, others func(now time.Time) [][]uint64) {
	ticker := time.NewTicker(voteInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := clock()
		v.count(others(now), now)
	}
}

// count takes in the votes of the others, and changes the ring where they say so.
func (v *votes) count(others [][]uint64, now time.Time) {
	v.probe(others)
	mine := v.down()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.shards {
		against := 0
		for _, of := range append(others, mine) {
			if slices.Contains(of, voteFor(s)) {
				against++
			}
		}
		one := v.votes[s.Addr()]
		if bad := 2*against > len(others)+1; bad != one.bad || one.since.IsZero() {
			one.bad, one.since = bad, now
		}
		switch since := now.Sub(one.since); {
		case one.bad && !one.out && since >= outAfter:
			one.out = true
			if one.inAfter = min(2*one.inAfter, maxInAfter); one.outAt.IsZero() || now.Sub(one.outAt) > calm {
				one.inAfter = inAfter
			}
			one.outAt = now
		case !one.bad && one.out && since >= one.inAfter:
			one.out = false
		}
	}
	v.applyLocked()
}

// applyLocked makes the ring what the operator and the votes say. Votes do not empty it:
// nothing would be gained. mu is held.
func (v *votes) applyLocked() {
	var out, voted []string
	for _, s := range v.shards {
		switch {
		case v.drains[voteFor(s)].on:
			out = append(out, s.Addr())
		case v.votes[s.Addr()].out:
			voted = append(voted, s.Addr())
		}
	}
	if len(out)+len(voted) < len(v.shards) {
		out = append(out, voted...)
	}
	slices.Sort(out)
	ring := fmt.Sprint(addrs(v.shards), out)
	if ring == v.ring {
		return
	}
	if err := v.set(v.shards, out...); err != nil {
		v.logger.Error("the ring does not change", "shards", addrs(v.shards), "out", out, "err", err)
		return
	}
	if v.ring != "" {
		v.logger.Info("the ring has changed", "out", out, "shards", len(v.shards))
	}
	for _, s := range v.shards {
		in := 1.0
		if slices.Contains(out, s.Addr()) {
			in = 0
		}
		v.inRing.WithLabelValues(s.Addr()).Set(in)
	}
	v.ring, v.out = ring, out
}

// addrs returns the addresses of shards.
func addrs(shards []*counter.Shard) (all []string) {
	for _, s := range shards {
		all = append(all, s.Addr())
	}
	return all
}

// probe asks the shards that others find down and this node does not: it may have had no
// reason to ask them. And it asks those that are down whether they still are.
func (v *votes) probe(others [][]uint64) {
	for _, s := range v.all() {
		if s.Down() {
			if s.Available() {
				_ = s.Probe() // the breaker takes note
			}
			continue
		}
		if !slices.ContainsFunc(others, func(of []uint64) bool { return slices.Contains(of, voteFor(s)) }) {
			continue
		}
		for range failures {
			if s.Probe() == nil {
				break
			}
		}
	}
}
