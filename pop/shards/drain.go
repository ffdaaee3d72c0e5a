package shards

import (
	"context"
	"time"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/admin"
)

// Drain removes the shard at an address from the ring of all nodes, or returns it if on is false. The other shards
// take over its keys within a second; see count.Loop.SetShards. It returns when this node's ring has followed.
// Configured shards, unlike discovered ones, store the drain, so it survives a restart of all nodes. Nodes without
// peers learn of it within 30 s.
func (w *Watch) Drain(addr string, on bool) error {
	w.mu.Lock()
	ok := w.votes.Drain(addr, on, w.o.Now())
	w.mu.Unlock()
	if !ok {
		return admin.Unknown("pop: there is no shard " + addr)
	}
	notify(w.drained)
	w.follow()
	return nil
}

// AppendDrains appends the drains to dst, which grows to at most longest bytes; see [vote.Votes.AppendDrains].
func (w *Watch) AppendDrains(dst []byte, longest int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.votes.AppendDrains(dst, longest)
}

// MergeDrains merges the drains of a peer. If they change the ring, it follows soon afterwards.
func (w *Watch) MergeDrains(drains []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.votes.ReadDrains(drains) {
		notify(w.stale)
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

// runDrains stores the drains in the shards, so that they survive a restart of all nodes, and merges what
// is stored there, until ctx is done.
func (w *Watch) runDrains(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		for _, s := range w.all() {
			// Idle connections may have ended: then the second try dials.
			if w.keepAt(s) != nil {
				_ = w.keepAt(s)
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
func (w *Watch) keepAt(s *memcached.Client) error {
	err := s.Update(w.o.DrainsItem, func(old []byte) ([]byte, int32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.votes.ReadDrains(old)
		return w.votes.AppendDrains(nil, maxKept), int32(keepFor / time.Second)
	})
	w.follow()
	return err
}
