package pop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/gossip"
)

// newRingWatchOf returns the ring of a node with n shards, which are never asked.
func newRingWatchOf(n int, set func([]*memcached.Client, ...string) error) *ringWatch {
	w := newRingWatch(set, slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry()).inRing, newNotices(slog.New(slog.DiscardHandler), time.Now, nil))
	var shards []*memcached.Client
	for i := range n {
		shards = append(shards, memcached.New(fmt.Sprintf("10.0.0.%d:11211", i), memcached.Options{}))
	}
	w.replace(shards)
	return w
}

func (w *ringWatch) countDrained() (n int) {
	for _, s := range w.states() {
		if s.Drained {
			n++
		}
	}
	return n
}

// More drains than one status has room for are sent by several.
func TestManyDrains(t *testing.T) {
	const shards = 200
	set := func([]*memcached.Client, ...string) error { return nil }
	here, there := newRingWatchOf(shards, set), newRingWatchOf(shards, set)
	for _, s := range here.shards {
		if err := here.drain(s.Addr(), true, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		status := here.append(make([]byte, statusSize-1))
		if len(status) > gossip.MaxStatus {
			t.Fatalf("a status has %d bytes, want at most %d", len(status), gossip.MaxStatus)
		}
		there.read(status[statusSize-1:])
	}
	if got := there.countDrained(); got != shards {
		t.Errorf("%d shards are drained after three statuses, want %d", got, shards)
	}
}

// After garbage in a shard, operators still have the last word.
func TestDrainAfterGarbage(t *testing.T) {
	const addr = "10.0.0.1:11211"
	var v votes
	v.replace([]string{addr})
	v.readDrains(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, voteFor(addr)), math.MaxUint64-1))
	for _, on := range []bool{true, false, true} {
		v.drain(addr, on, time.Now())
		if got := slices.Contains(v.out(), addr); got != on {
			t.Errorf("drained: %t, want %t", got, on)
		}
	}
}

// Of orders to drain a shard all nodes keep the same one, in whatever order they hear of them.
func TestDrainsConverge(t *testing.T) {
	const addr = "10.0.0.1:11211"
	now := time.Unix(1_800_000_000, 0)
	exchange := func(a, b *votes) {
		toB, toA := a.appendDrains(nil, maxKept), b.appendDrains(nil, maxKept)
		a.readDrains(toA)
		b.readDrains(toB)
	}
	for _, tt := range []struct {
		name       string
		a, b       bool          // what two operators order
		behind     time.Duration // of the second one's clock
		heardFirst bool          // the second node has heard of the first order
		want       bool
	}{
		{"the later one holds", true, false, -time.Second, false, false},
		{"the earlier one does not", true, false, time.Second, false, true},
		{"at the same time", true, false, 0, false, true},
		{"at the same time, the other way", false, true, 0, false, true},
		{"by a clock that is behind", true, false, time.Hour, true, false},
	} {
		var a, b votes
		a.replace([]string{addr})
		b.replace([]string{addr})
		a.drain(addr, tt.a, now)
		if tt.heardFirst {
			exchange(&a, &b)
		}
		b.drain(addr, tt.b, now.Add(-tt.behind))
		exchange(&a, &b)
		for name, v := range map[string]*votes{"first": &a, "second": &b} {
			if got := slices.Contains(v.out(), addr); got != tt.want {
				t.Errorf("%s: drained on the %s node: %t, want %t", tt.name, name, got, tt.want)
			}
		}
	}
}

// A node that finds very many shards down still has a status that fits a packet.
func TestManyShardsDown(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
	w := newRingWatch(func([]*memcached.Client, ...string) error { return nil }, slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry()).inRing, newNotices(slog.New(slog.DiscardHandler), time.Now, nil))
	var shards []*memcached.Client
	for i := range 200 {
		s := memcached.New(fmt.Sprintf("10.0.0.%d:11211", i), memcached.Options{Dial: dial, Failures: 1})
		_ = s.Probe() // it fails
		shards = append(shards, s)
	}
	w.replace(shards)
	status := w.append(make([]byte, statusSize-1))
	if len(status) > gossip.MaxStatus {
		t.Errorf("a status has %d bytes, want at most %d", len(status), gossip.MaxStatus)
	}
	if got := len(w.read(status[statusSize-1:])); got != maxVotes {
		t.Errorf("another node reads %d votes, want %d", got, maxVotes)
	}
	if states := w.states(); !states[0].Down || !states[0].InRing {
		t.Errorf("a shard that is down and in the ring is shown as %+v", states[0])
	}
}

// While the ring changes, statuses are received and sent: gossip waits for neither.
func TestStatusesWhileTheRingChanges(t *testing.T) {
	var w *ringWatch
	changes := 0
	set := func([]*memcached.Client, ...string) error {
		changes++
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.read(w.append(nil))
			w.states()
		}()
		<-done // never, if a status waits until the ring has changed
		return nil
	}
	w = newRingWatchOf(0, set)
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

// A shard leaves the ring after most nodes have voted against it for a second, and comes back
// after three, later each time it leaves again soon.
func TestVotes(t *testing.T) {
	const a, b = "10.0.0.1:11211", "10.0.0.2:11211"
	type step struct {
		at      time.Duration
		against string // the shard that each node votes against: a, b, or - for none
		want    string // the shards that are out
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a node alone decides", []step{{0, "a", ""}, {time.Second, "a", "a"}}},
		{"one of two is a tie", []step{{0, "a-", ""}, {time.Minute, "a-", ""}}},
		{"two of four are a tie", []step{{0, "aa--", ""}, {time.Minute, "aa--", ""}}},
		{"two of three are most", []step{{0, "aa-", ""}, {time.Second, "aa-", "a"}}},
		{"a tie brings a shard back", []step{{0, "aa", ""}, {time.Second, "aa", "a"}, {2 * time.Second, "a-", "a"}, {5 * time.Second, "a-", ""}}},
		{"a short silence", []step{{0, "a", ""}, {999 * time.Millisecond, "a", ""}, {time.Second, "-", ""}, {1500 * time.Millisecond, "a", ""}, {2499 * time.Millisecond, "a", ""}, {2500 * time.Millisecond, "a", "a"}}},
		{"votes against different shards", []step{{0, "ab-", ""}, {time.Minute, "ab-", ""}}},
		{"votes do not empty the ring", []step{{0, "a", ""}, {time.Second, "a", "a"}, {2 * time.Second, "b", "a"}, {4 * time.Second, "b", ""}, {5 * time.Second, "b", "b"}}},
		{"it comes back later each time", []step{
			{0, "a", ""}, {time.Second, "a", "a"},
			{2 * time.Second, "-", "a"}, {4999 * time.Millisecond, "-", "a"}, {5 * time.Second, "-", ""},
			{6 * time.Second, "a", ""}, {7 * time.Second, "a", "a"},
			{8 * time.Second, "-", "a"}, {13999 * time.Millisecond, "-", "a"}, {14 * time.Second, "-", ""},
			{15 * time.Second, "a", ""}, {16 * time.Second, "a", "a"},
			{17 * time.Second, "-", "a"}, {28999 * time.Millisecond, "-", "a"}, {29 * time.Second, "-", ""},
		}},
		{"after a calm time it comes back as soon as at first", []step{
			{0, "a", ""}, {time.Second, "a", "a"}, {2 * time.Second, "-", "a"}, {5 * time.Second, "-", ""},
			{5 * time.Minute, "a", ""}, {5*time.Minute + 2*time.Second, "a", "a"},
			{5*time.Minute + 3*time.Second, "-", "a"}, {5*time.Minute + 6*time.Second, "-", ""},
		}},
	} {
		var v votes
		v.replace([]string{a, b})
		start := time.Unix(1_800_000_000, 0)
		for _, s := range tt.steps {
			var against [][]uint64
			for _, c := range s.against {
				of := map[rune][]uint64{'a': {voteFor(a)}, 'b': {voteFor(b)}}[c]
				against = append(against, of)
			}
			v.count(against, start.Add(s.at))
			out := ""
			for _, addr := range v.out() {
				out += map[string]string{a: "a", b: "b"}[addr]
			}
			if out != s.want {
				t.Errorf("%s: after %v, with votes %s: %q are out, want %q", tt.name, s.at, s.against, out, s.want)
			}
		}
	}
}

// A shard keeps its standing and its drain while other shards come and go.
func TestVotesOverReplacement(t *testing.T) {
	var v votes
	v.replace([]string{"a:1", "b:1", "c:1"})
	start := time.Unix(1_800_000_000, 0)
	v.drain("b:1", true, start)
	for _, at := range []time.Duration{0, time.Second} {
		v.count([][]uint64{{voteFor("a:1")}}, start.Add(at))
	}
	v.replace([]string{"a:1", "b:1", "d:1"})
	if got, want := fmt.Sprint(v.out()), "[a:1 b:1]"; got != want {
		t.Errorf("%s are out, want %s", got, want)
	}
	if v.drain("c:1", true, start) {
		t.Error("a shard is drained that left")
	}
}
