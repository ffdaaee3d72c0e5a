package pop

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/vote"
)

const (
	// voteInterval is how often the votes are counted.
	voteInterval = 250 * time.Millisecond

	// failures is the number of probes to a shard that another node votes against: as many as open a breaker by
	// default.
	failures = 3

	// maxVotes is the maximum number of shards that a node votes against.
	maxVotes = 64
)

// A ringWatch keeps a node's ring in line with the votes. Its methods may be called concurrently. append,
// mergeDrains and states never wait for the ring to change.
type ringWatch struct {
	set     func(shards []count.Shard, out ...string) error
	logger  *slog.Logger
	inRing  *prometheus.GaugeVec
	notices *notices
	stale   chan struct{} // capacity 1: the ring must follow the votes
	drained chan struct{} // capacity 1: an operator has drained a shard here

	setting sync.Mutex // held while the ring changes; locked before mu

	mu     sync.Mutex          // guards the fields below; not held during calls that may wait
	shards []*memcached.Client // as given to replace
	votes  vote.Votes
	ring   []*memcached.Client // the shards when the ring was last set
	out    []string            // addresses of shards that are kept out of it
}

func newRingWatch(set func([]count.Shard, ...string) error, logger *slog.Logger, inRing *prometheus.GaugeVec, notices *notices) *ringWatch {
	return &ringWatch{notices: notices, set: set, logger: logger, inRing: inRing, stale: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
}

// replace replaces the shards, and returns when the ring has followed. The caller must not modify the slice
// afterwards.
func (w *ringWatch) replace(shards []*memcached.Client) {
	w.mu.Lock()
	w.shards = shards
	w.votes.Replace(addrs(shards))
	w.mu.Unlock()
	w.follow()
}

// addrs returns the addresses of shards.
func addrs(shards []*memcached.Client) (all []string) {
	for _, s := range shards {
		all = append(all, s.Addr())
	}
	return all
}

// all returns the shards.
func (w *ringWatch) all() []*memcached.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shards
}

// against returns the shards that this node votes against.
func (w *ringWatch) against() (all []uint64) {
	for _, s := range w.all() {
		if s.Down() && len(all) < maxVotes {
			all = append(all, vote.ID(s.Addr()))
		}
	}
	return all
}

// append appends this node's votes, and the drains, to a status.
func (w *ringWatch) append(status []byte) []byte {
	against := w.against()
	status = append(status, byte(len(against)))
	for _, shard := range against {
		status = binary.BigEndian.AppendUint64(status, shard)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.votes.AppendDrains(status, gossip.MaxStatus-statusTail)
}

// mergeDrains merges the drains of another node's status. If they change the ring, it follows soon afterwards.
func (w *ringWatch) mergeDrains(drains []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.votes.ReadDrains(drains) {
		notify(w.stale)
	}
}

// notify sends to a channel of capacity 1, unless it is full.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drain removes a shard from the ring of all nodes, or returns it, and returns when this node's ring has
// followed.
func (w *ringWatch) drain(addr string, on bool, now time.Time) error {
	w.mu.Lock()
	ok := w.votes.Drain(addr, on, now)
	w.mu.Unlock()
	if !ok {
		return admin.Unknown("pop: there is no shard " + addr)
	}
	notify(w.drained)
	w.follow()
	return nil
}

// follow sets the ring if the votes have changed it.
func (w *ringWatch) follow() {
	w.setting.Lock()
	defer w.setting.Unlock()
	w.mu.Lock()
	shards, out := w.shards, w.votes.Out()
	live, drained := 0, 0
	for _, s := range shards {
		if w.votes.Drained(s.Addr()) {
			drained++
		} else if !s.Down() {
			live++
		}
	}
	before, same := w.ring, slices.Equal(shards, w.ring) && slices.Equal(out, w.out)
	w.mu.Unlock()
	text := ""
	if drained > 0 && live == 0 {
		text = fmt.Sprintf("no live shard is left (%d of %d drained), so each node counts alone: undrain one", drained, len(shards))
	}
	w.notices.note(problemNoShard, text)
	if same {
		return
	}
	all := make([]count.Shard, len(shards))
	for i, s := range shards {
		all[i] = s
	}
	if err := w.set(all, out...); err != nil {
		w.logger.Error("cannot change the ring", "shards", addrs(shards), "out", out, "err", err)
		return
	}
	if before != nil {
		w.logger.Info("the ring has changed", "out", out, "shards", len(shards))
	}
	for _, gone := range before {
		if !slices.Contains(addrs(shards), gone.Addr()) {
			w.inRing.DeleteLabelValues(gone.Addr())
		}
	}
	for _, s := range shards {
		in := 1.0
		if slices.Contains(out, s.Addr()) {
			in = 0
		}
		w.inRing.WithLabelValues(s.Addr()).Set(in)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring, w.out = shards, out
}

// runFollow sets the ring after drains of other nodes, until ctx is done.
func (w *ringWatch) runFollow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stale:
			w.follow()
		}
	}
}

// count counts the votes at now. others are the votes of the other live nodes.
func (w *ringWatch) count(others [][]uint64, now time.Time) {
	w.probe(others)
	all := append(others, w.against())
	w.mu.Lock()
	w.votes.Count(all, now)
	w.mu.Unlock()
	w.follow()
}

// probe probes the shards that only other nodes vote against, which this node may not have used, and those that
// are down, to notice when they are back.
func (w *ringWatch) probe(others [][]uint64) {
	for _, s := range w.all() {
		if s.Down() {
			if s.Available() {
				_ = s.Probe() // the breaker records the result
			}
			continue
		}
		if !slices.ContainsFunc(others, func(of []uint64) bool { return slices.Contains(of, vote.ID(s.Addr())) }) {
			continue
		}
		for range failures {
			if s.Probe() == nil {
				break
			}
		}
	}
}

const (
	// keepInterval is how often drains are read from the shards and stored again: a shard may have been down or
	// have lost them, and nodes without peers learn of them only from shards.
	keepInterval = 30 * time.Second

	// keepFor is how long a shard keeps the drains. memcached reads longer times as dates.
	keepFor = 30 * 24 * time.Hour

	// maxKept is the maximum size of the stored drains, in bytes.
	maxKept = 1 << 16
)

// keep stores the drains in the shards under key, so that they survive a restart of all nodes, and merges what
// is stored there, until ctx is done.
func (w *ringWatch) keep(ctx context.Context, key string) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		for _, s := range w.all() {
			// Idle connections may have ended: then the second try dials.
			if w.keepAt(s, key) != nil {
				_ = w.keepAt(s, key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.drained:
		}
	}
}

// keepAt merges the drains that a shard stores with those of this node.
func (w *ringWatch) keepAt(s *memcached.Client, key string) error {
	err := s.Update(key, func(old []byte) ([]byte, int32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.votes.ReadDrains(old)
		return w.votes.AppendDrains(nil, maxKept), int32(keepFor / time.Second)
	})
	w.follow()
	return err
}

// states returns the shards as operators see them, in the order of their addresses.
func (w *ringWatch) states() []admin.Shard {
	all := []admin.Shard{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shards {
		breaker := "closed"
		switch down := s.Down(); {
		case down && s.Available():
			breaker = "half_open"
		case down:
			breaker = "open"
		}
		all = append(all, admin.Shard{
			Addr: s.Addr(), Down: breaker != "closed", Breaker: breaker, InRing: !slices.Contains(w.out, s.Addr()), Drained: w.votes.Drained(s.Addr()),
		})
	}
	slices.SortFunc(all, func(a, b admin.Shard) int { return strings.Compare(a.Addr, b.Addr) })
	return all
}
