package async

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A tick lies in one window and one sub-window of each limit, unless sub-windows do not last whole
// seconds.
func TestTicks(t *testing.T) {
	now := time.UnixMilli(1_800_000_123_456)
	for limits, want := range map[string]int64{
		"[{threshold: 50, period: 10s}]": 1_800_000_123_000,
		"[{threshold: 50, period: 10s, sub_windows: 5}, {threshold: 90, period: 1m, sub_windows: 6}]": 1_800_000_123_000,
		"[{threshold: 50, period: 10s, sub_windows: 6}]":                                              1_800_000_123_450,
		"[{threshold: 90, period: 1m, sub_windows: 6}, {threshold: 50, period: 7s, sub_windows: 2}]":  1_800_000_123_450,
	} {
		if got := tickOf(newRule(t, limits), now); got != want {
			t.Errorf("%s: %v is in the tick of %d ms, want %d", limits, now, got, want)
		}
	}
}

// at returns the time this many seconds and microseconds after a moment at which windows of all these periods begin.
func at(seconds, micros int64) time.Time { return time.UnixMicro(3600*1e6 + seconds*1e6 + micros) }

func newRule(tb testing.TB, limits string) *rule.Rule {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: "+limits+"}]"))
	if err != nil {
		tb.Fatal(err)
	}
	return set.Rules()[0]
}

// A tracked is a track of a loop that counts nothing else.
type tracked struct {
	*track
	*Loop
}

// newTrack returns the track of a key that r counts.
func newTrack(r *rule.Rule, now time.Time) tracked {
	c := &Loop{o: Options{Table: mitigation.New(mitigation.Options{})}}
	c.metrics = newMetrics(nil, c)
	t := tracked{new(track), c}
	c.setRule(t.track, r, now)
	return t
}

// lost returns how many requests were dropped for a cause.
func (t tracked) lost(cause int) uint64 { return uint64(testutil.ToFloat64(t.metrics.dropped[cause])) }

// count counts n requests.
func (t tracked) count(n uint64, now time.Time) {
	t.Loop.add(t.track, &item{n: n, tick: now.UnixMilli()})
}

// exceeded reports whether the counts of t exceed a limit.
func (t tracked) exceeded(now time.Time) bool {
	t.advance(t.track, now)
	_, over := t.track.evaluate(now)
	return over
}

// A sentIncrement is an increment of one counter.
type sentIncrement struct {
	slot
	counter.Increment
}

// sentIncrements returns the increments that one of this many nodes sends at now.
func (t tracked) sentIncrements(nodes int, now time.Time) (all []sentIncrement) {
	var b batch
	t.o.Nodes = func() int { return nodes }
	t.take(&b, t.track, now)
	for i := range b.Increments {
		all = append(all, sentIncrement{b.increments[i], b.Increments[i]})
	}
	return all
}

// answer records the shard's answer to s.
func (t tracked) answer(s sentIncrement, value uint64) {
	_, tally := s.find()
	tally.reply(s.layout, value, s.Delta)
}

// The loop calls Ahead, which may wait, without a lock that requests need.
func TestAheadHoldsUpNoRequest(t *testing.T) {
	now := at(1, 0)
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}]"), now)
	asked := false
	tr.o.Ahead = func() time.Duration {
		asked = true
		if mu := &tr.part(tr.key).mu; !mu.TryLock() {
			t.Error("the loop asks how far the clock is ahead while requests wait for it")
		} else {
			mu.Unlock()
		}
		return 0
	}
	s := tr.slot(0, tr.windows()[0].Index-1)
	tr.handleRead(&s, &counter.Read{Outcome: counter.Done, Value: []byte("7")}, now)
	if w := &tr.windows()[0]; !asked || w.fresh || w.Prev.known != 7 {
		t.Errorf("the previous window is %+v, want a known count of 7", w)
	}
}

// Requests that can never be counted because their sub-window is full are dropped and counted as
// such.
func TestFullSubWindow(t *testing.T) {
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]"), at(1, 0))
	tr.count(5000, at(1, 0))
	tr.count(3, at(11, 0))
	w, layout := &tr.windows()[0], tr.limit(0).Layout
	if n, full := layout.Sum(w.Cur.waiting), tr.lost(dropFull); n+full != 5003 || n < 768+3 {
		t.Errorf("of 5003 requests, %d wait and %d are dropped; the sub-window stops at 768", n, full)
	}
	if !tr.exceeded(at(12, 0)) {
		t.Error("5003 requests are not over a limit of 50")
	}
	sends := tr.sentIncrements(0, at(25, 0))
	if got, want := sends[0].Delta, uint64(8|3<<10); len(sends) != 1 || got != want {
		t.Errorf("with up to 16 nodes, one sends %#x, want %#x", got, want)
	}
	tr.answer(sends[0], 770|3<<10) // other nodes have filled it
	if sends := tr.sentIncrements(0, at(25, 0)); len(sends) != 0 || tr.unsent() || tr.lost(dropFull) < 5003-8-3 {
		t.Errorf("a full sub-window is still counted: %+v", sends)
	}
	tr.count(2, at(21, 0))
	if sends := tr.sentIncrements(0, at(25, 0)); len(sends) != 1 || sends[0].Delta != 2<<20 {
		t.Errorf("next to a full sub-window %+v is counted, want 2 in the third", sends)
	}
}

// With more nodes than a sub-window has room for, a node sends nothing to it and decides by its own
// counts. Other limits are counted as usual.
func TestMoreNodesThanSubWindowHolds(t *testing.T) {
	r := newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}, {threshold: 500, period: 1h}]")
	sent := func(tr tracked, nodes int) (packed, whole uint64) {
		for _, s := range tr.sentIncrements(nodes, at(5, 0)) {
			tr.answer(s, s.Delta)
			if s.layout == counter.Plain {
				whole += s.Delta
			} else {
				packed += s.Delta
			}
		}
		return packed, whole
	}
	for nodes, want := range map[int]uint64{16: 8, 128: 1, 129: 0, 1000: 0, 1 << 20: 0} {
		tr := newTrack(r, at(1, 0))
		tr.count(40, at(1, 0))
		packed, whole := sent(tr, nodes)
		if packed != want || whole != 40 {
			t.Errorf("with %d nodes, one sends %d to a sub-window and %d to a window, want %d and 40", nodes, packed, whole, want)
		}
		if tr.exceeded(at(2, 0)) {
			t.Errorf("%d nodes: 40 requests are over a limit of 50", nodes)
		}
		tr.count(11, at(3, 0))
		if !tr.exceeded(at(3, 0)) {
			t.Errorf("%d nodes: 51 requests are not over a limit of 50", nodes)
		}
		sent(tr, nodes)
		alone, left := tr.lost(dropNodes), tr.windows()[0].Cur.waiting
		if want == 0 && (alone != 51 || left != 0) || want > 0 && alone != 0 {
			t.Errorf("%d nodes: %d requests are counted by the node alone, %d wait", nodes, alone, left)
		}
		if !tr.exceeded(at(3, 0)) {
			t.Errorf("%d nodes: after sending, 51 requests are not over a limit of 50", nodes)
		}
	}
}

// All nodes of a crowd have as much in flight as they may when a sub-window is about to be full, and
// again after a restart.
func TestManyNodesNeverOverflowSubWindow(t *testing.T) {
	r := newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]")
	stop := r.Limits[0].Counted().Layout.Stop()
	for _, nodes := range []int{1, 16, 64, 128, 129, 256, 300, 600} {
		value := stop - 1
		for range 2 * nodes {
			tr := newTrack(r, at(1, 0))
			tr.count(stop, at(1, 0))
			if sends := tr.sentIncrements(nodes, at(5, 0)); len(sends) > 0 {
				value += sends[0].Delta
			}
		}
		if value > 1023 {
			t.Errorf("%d nodes raise a sub-window to %d, but it holds 1023", nodes, value)
		}
	}
}

// The counts of a network are held back only while the same count, held back by every node, would use at most half of
// what remains.
func TestHeldCountsLeaveHalfOfTheRest(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [\"network:24/56\"], limits: [{threshold: 100, period: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint64]bool{20: true, 21: false, 33: false, 50: false} { // 2 nodes · 20 = (100 − 20) / 2
		tr := newTrack(set.Rules()[0], at(1, 0))
		tr.o.Nodes = func() int { return 2 }
		tr.count(n, at(1, 0))
		tr.since = at(1, 0).UnixMicro()
		if got := tr.holds(tr.track, at(1, 0)); got != want {
			t.Errorf("%d requests of 100 are held back: %t, want %t", n, got, want)
		}
	}
}
