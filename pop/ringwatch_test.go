package pop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/gossip"
)

// newRing returns the ring of a node without shards, which set changes.
func newRing(set func([]count.Shard, ...string) error) *ringWatch {
	logger := slog.New(slog.DiscardHandler)
	return newRingWatch(set, logger, newMetrics(prometheus.NewRegistry()).inRing, newNotices(logger, time.Now, nil))
}

// The status of a node that finds very many shards down still fits into a packet.
func TestManyShardsDown(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
	w := newRing(func([]count.Shard, ...string) error { return nil })
	var shards []*memcached.Client
	for i := range 200 {
		s := memcached.New(fmt.Sprintf("10.0.0.%d:11211", i), memcached.Options{Dial: dial, Failures: 1})
		_ = s.Probe() // it fails
		shards = append(shards, s)
	}
	w.replace(shards)
	votes := w.append(nil)
	if room := gossip.MaxStatus - statusHead - statusTail; len(votes) > room || int(votes[0]) != maxVotes {
		t.Errorf("a status has %d bytes for %d votes, want at most %d for %d", len(votes), votes[0], room, maxVotes)
	}
	if states := w.states(); !states[0].Down || !states[0].InRing {
		t.Errorf("a shard that is down and in the ring is shown as %+v", states[0])
	}
}

// Statuses are received and sent while the ring changes: gossip does not wait.
func TestStatusesWhileTheRingChanges(t *testing.T) {
	var w *ringWatch
	changes := 0
	set := func([]count.Shard, ...string) error {
		changes++
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.mergeDrains(w.append(nil))
			w.states()
		}()
		<-done // blocks forever if a status waits until the ring has changed
		return nil
	}
	w = newRing(set)
	w.replace([]*memcached.Client{memcached.New("10.0.0.1:11211", memcached.Options{})})
	if err := w.drain("10.0.0.1:11211", true, time.Now()); err != nil {
		t.Fatal(err)
	}
	if states := w.states(); !states[0].Drained || states[0].InRing {
		t.Errorf("a shard that is drained is shown as %+v", states[0])
	}
	if changes != 2 {
		t.Errorf("the ring changed %d times, want 2", changes)
	}
}
