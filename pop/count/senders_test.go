package count

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

func TestCheckNodes(t *testing.T) {
	for _, tt := range []struct {
		name, limits string
		nodes        int
		want         string // the errors; empty if there are none
	}{
		{"whole windows", "[{threshold: 50, period: 1m}]", 1 << 20, ""},
		{"six sub-windows, as many nodes as fit", "[{threshold: 50, period: 1m, sub_windows: auto}]", 128, ""},
		{"one node more", "[{threshold: 50, period: 1m, sub_windows: auto}]", 129,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 6 sub-windows, which are for 128 nodes at most, and the PoP may have 129 (write sub_windows: 5)"},
		{"thousands of nodes, two limits of three", "[{threshold: 5, period: 1h}, {threshold: 50, period: 1m, sub_windows: 5}, {threshold: 7, period: 1s}, {threshold: 9, period: 2h, sub_windows: 6}]", 5000,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 5 sub-windows, which are for 512 nodes at most, and the PoP may have 5000 (write sub_windows: 4)\n" +
				"rules.yaml:1:1: rule r: the limit of 9 in 2h has 6 sub-windows, which are for 128 nodes at most, and the PoP may have 5000 (write sub_windows: 4)"},
		{"more nodes than there are", "[{threshold: 50, period: 1m, sub_windows: 2}]", 1 << 30,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 2 sub-windows, which are for 536870912 nodes at most, and the PoP may have 1073741824 (write sub_windows: 1)"},
	} {
		set, err := rule.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: "+tt.limits+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckNodes(set, tt.nodes); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// The schema of rules files says these.
func TestMostNodesOfTheSchema(t *testing.T) {
	for fields, want := range map[int]int{6: 128, 5: 512, 4: 8192} {
		if got := MostNodes(packedLayouts[fields-2]); got != want || !strings.Contains(string(rule.Schema), fmt.Sprintf("%d are for %d nodes", fields, want)) && !strings.Contains(string(rule.Schema), fmt.Sprintf("%d for %d", fields, want)) {
			t.Errorf("%d sub-windows are for %d nodes, the schema says otherwise", fields, got)
		}
	}
}

// What is checked is what a node does: with one node more than a layout is for, it has no
// budget.
func TestMostNodes(t *testing.T) {
	for _, l := range packedLayouts {
		if n := MostNodes(l); l.Budget(sendersOf(n)) == 0 || l.Budget(sendersOf(n+1)) != 0 {
			t.Errorf("%v: of %d nodes one may send %d, of one more %d", l, n, l.Budget(sendersOf(n)), l.Budget(sendersOf(n+1)))
		}
	}
}

// Of many errors the first are said.
func TestCheckNodesOfManyRules(t *testing.T) {
	text := "rules:\n"
	for i := range 30 {
		text += fmt.Sprintf("  - {id: r%d, characteristics: [ip], limits: [{threshold: 5, period: 1m, sub_windows: 6}]}\n", i)
	}
	set, err := rule.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var errs rule.Errors
	if err := CheckNodes(set, 200); !errors.As(err, &errs) || len(errs) != 21 || errs[19].Line != 21 || errs[20].Message != "too many errors; the rest is not shown" {
		t.Errorf("30 rules do not fit: %v", err)
	}
}

// What arrives in a tick lies in one window and one sub-window of each limit, but where
// sub-windows last no whole seconds.
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

// at returns a time in seconds and microseconds after a window of every period here began.
func at(seconds, micros int64) time.Time { return time.UnixMicro(3600*1e6 + seconds*1e6 + micros) }

func newRule(tb testing.TB, limits string) *rule.Rule {
	tb.Helper()
	set, err := rule.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: "+limits+"}]"))
	if err != nil {
		tb.Fatal(err)
	}
	return set.Rules()[0]
}

// newTrack returns the track of a key that r counts, and what it loses.
func newTrack(r *rule.Rule, now time.Time) (*track, *losses) {
	lost := new(losses)
	t := &track{lost: lost}
	t.setRule(r, now, nil)
	return t, lost
}

// exceeded reports whether the counts of t exceed a limit.
func (t *track) exceeded(now time.Time) bool {
	_, over := t.evaluate(now, 0)
	return over
}

// Requests that will never be counted, since their sub-window is full, are not kept, and
// counted as such.
func TestAFullSubWindow(t *testing.T) {
	tr, lost := newTrack(newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]"), at(1, 0))
	tr.add(5000, at(1, 0))
	tr.add(3, at(11, 0))
	w := &tr.windows[0]
	if n, full := w.limit.Layout.Sum(w.Cur.pending), lost[dropFull]; n+full != 5003 || n < 768+3 {
		t.Errorf("%d requests wait, %d are given up, of 5003; the sub-window stops at 768", n, full)
	}
	if !tr.exceeded(at(12, 0)) {
		t.Error("5003 requests are not over a limit of 50")
	}
	sends := tr.take(nil, sendersOf(0))
	if got, want := sends[0].delta, uint64(8|3<<10); len(sends) != 1 || got != want {
		t.Errorf("of 16 nodes or less one sends %#x, want %#x", got, want)
	}
	tr.counted(&sends[0], theShard, 770|3<<10) // others brought it there
	if sends := tr.take(nil, sendersOf(0)); len(sends) != 0 || tr.unsent() || lost[dropFull] < 5003-8-3 {
		t.Errorf("a full sub-window is counted further: %+v", sends)
	}
	tr.add(2, at(21, 0))
	if sends := tr.take(nil, sendersOf(0)); len(sends) != 1 || sends[0].delta != 2<<20 {
		t.Errorf("beside a full sub-window %+v is counted, want 2 in the third", sends)
	}
}

// A node that knows of more nodes than a sub-window has room for sends nothing to it, and
// decides by what it counts itself. Its other limits are counted as ever.
func TestMoreNodesThanASubWindowHolds(t *testing.T) {
	r := newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}, {threshold: 500, period: 1h}]")
	sent := func(tr *track, nodes int) (packed, whole uint64) {
		for _, s := range tr.take(nil, sendersOf(nodes)) {
			tr.counted(&s, theShard, s.delta)
			if s.limit.Layout == counter.Plain {
				whole += s.delta
			} else {
				packed += s.delta
			}
		}
		return packed, whole
	}
	for nodes, want := range map[int]uint64{16: 8, 128: 1, 129: 0, 1000: 0, 1 << 20: 0} {
		tr, lost := newTrack(r, at(1, 0))
		tr.add(40, at(1, 0))
		packed, whole := sent(tr, nodes)
		if packed != want || whole != 40 {
			t.Errorf("of %d nodes one sends %d to a sub-window and %d to a window, want %d and 40", nodes, packed, whole, want)
		}
		if tr.exceeded(at(2, 0)) {
			t.Errorf("%d nodes: 40 requests are over a limit of 50", nodes)
		}
		tr.add(11, at(3, 0))
		if !tr.exceeded(at(3, 0)) {
			t.Errorf("%d nodes: 51 requests are not over a limit of 50", nodes)
		}
		sent(tr, nodes)
		alone, left := lost[dropNodes], tr.windows[0].Cur.pending
		if want == 0 && (alone != 51 || left != 0) || want > 0 && alone != 0 {
			t.Errorf("%d nodes: %d requests are counted by the node alone, %d wait", nodes, alone, left)
		}
		if !tr.exceeded(at(3, 0)) {
			t.Errorf("%d nodes: sending made 51 requests less", nodes)
		}
	}
}

// All nodes of a crowd have on their way what they may when a sub-window is about to be
// full, and again after a restart.
func TestNoCrowdOverflowsASubWindow(t *testing.T) {
	r := newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]")
	stop := r.Limits[0].Counted().Layout.Stop()
	for _, nodes := range []int{1, 16, 64, 128, 129, 256, 300, 600} {
		value := stop - 1
		for range lives * nodes {
			tr, _ := newTrack(r, at(1, 0))
			tr.add(stop, at(1, 0))
			if sends := tr.take(nil, sendersOf(nodes)); len(sends) > 0 {
				value += sends[0].delta
			}
		}
		if value > 1023 {
			t.Errorf("%d nodes bring a sub-window to %d, it holds 1023", nodes, value)
		}
	}
}
