package pop

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/gossip"
)

// newVotesOf returns the votes of a node with n shards, none of which is asked.
func newVotesOf(n int) *votes {
	set := func([]*counter.Shard, ...string) error { return nil }
	v := newVotes(set, slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry()).inRing)
	var shards []*counter.Shard
	for i := range n {
		shards = append(shards, counter.NewShard(fmt.Sprintf("10.0.0.%d:11211", i), counter.ShardOptions{}))
	}
	v.replace(shards)
	return v
}

func (v *votes) drained() (n int) {
	for _, s := range v.shardStates() {
		if s.Drained {
			n++
		}
	}
	return n
}

// What was said of more shards than a status has room for is told by several.
func TestManyDrains(t *testing.T) {
	const shards = 200
	here, there := newVotesOf(shards), newVotesOf(shards)
	for _, s := range here.shards {
		if err := here.drain(s.Addr(), true, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		status := here.append(make([]byte, statusSize-1))
		if len(status) > gossip.MaxStatus {
			t.Fatalf("a status has %d bytes, want %d at most", len(status), gossip.MaxStatus)
		}
		there.read(status[statusSize-1:])
	}
	if got := there.drained(); got != shards {
		t.Errorf("%d shards are drained after three statuses, want %d", got, shards)
	}
}

// Garbage in a shard leaves the last word to operators.
func TestDrainAfterGarbage(t *testing.T) {
	v := newVotesOf(2)
	of := voteFor(v.shards[0])
	v.mu.Lock()
	v.readDrainsLocked(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, of), math.MaxUint64-1))
	v.mu.Unlock()
	for _, on := range []bool{true, false, true} {
		if err := v.drain(v.shards[0].Addr(), on, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := v.drained() == 1; got != on {
			t.Errorf("drained: %t, want %t", got, on)
		}
	}
}
