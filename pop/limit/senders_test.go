package limit

import (
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
		want         string // part of the error; empty if there is none
	}{
		{"whole windows", "[{threshold: 50, period: 1m}]", 1 << 20, ""},
		{"six sub-windows, as many nodes as fit", "[{threshold: 50, period: 1m, sub_windows: auto}]", 128, ""},
		{"one node more", "[{threshold: 50, period: 1m, sub_windows: auto}]", 129, "rules.yaml:1:1: rule r: 6 sub-windows are too many for a PoP of 129 nodes (write sub_windows: 5 for the limit of 50 in 1m)"},
		{"thousands of nodes", "[{threshold: 5, period: 1h}, {threshold: 50, period: 1m, sub_windows: 5}]", 5000, "write sub_windows: 4 for"},
		{"more nodes than there are", "[{threshold: 50, period: 1m, sub_windows: 2}]", 1 << 30, "write sub_windows: 1 for"},
	} {
		set, err := rule.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: "+tt.limits+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckNodes(set, tt.nodes); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
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

// Requests that will never be counted, since their sub-window is full, are not kept, and
// counted as such.
func TestAFullSubWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]"), at(1, 0), nil)
	tr.add(5000, at(1, 0))
	tr.add(3, at(11, 0))
	if n, full := tr.unsentRequests(), tr.full(); n+full != 5003 || n < 768+3 {
		t.Errorf("%d requests wait, %d are given up, of 5003; the sub-window stops at 768", n, full)
	}
	if f := tr.evaluate(at(12, 0)); !f.over {
		t.Error("5003 requests are not over a limit of 50")
	}
	j, _ := next(tr, at(12, 0))
	if got, want := j.sends[0].delta, uint64(8|3<<10); len(j.sends) != 1 || got != want {
		t.Errorf("of 16 nodes or less one sends %#x, want %#x", got, want)
	}
	tr.counted(j.sends[0], 770|3<<10) // others brought it there
	tr.readRecord = false
	if j, _ := next(tr, at(12, 0)); len(j.sends) != 0 || tr.unsentRequests() != 0 || tr.full() < 700 {
		t.Errorf("a full sub-window is counted further: %+v", j.sends)
	}
	tr.add(2, at(21, 0))
	if j, _ := next(tr, at(21, 0)); len(j.sends) != 1 || j.sends[0].delta != 2<<20 {
		t.Errorf("beside a full sub-window %+v is counted, want 2 in the third", j.sends)
	}
}

// A shard that takes what it is sent, and never answers.
type silentShard struct {
	Shard
	asked func()
}

func (s silentShard) Count(string, uint64, int32) (uint64, error) {
	s.asked()
	return 0, counter.ErrUnknown
}

func (silentShard) Numbers(...string) (map[string][]byte, error) { return nil, nil }

// What a key cannot send, since replies that are missing have used up its budget, is counted
// as lost when the key is forgotten, also if that happens while it is at work.
func TestAForgottenKeyWithoutBudget(t *testing.T) {
	for _, atWork := range []bool{false, true} {
		l, ln := idle(t, "[{threshold: 50, period: 168h, sub_windows: 6}]", 10)
		part := [2]counter.Key{{1}, {1 + trackParts}}
		forget := func() { l.track(part[1], l.Rules().Rules()[0], time.Now(), nil) }
		ln.shard = silentShard{ln.shard, func() {
			if atWork {
				forget()
			}
		}}
		tr := l.count(part[0], 20)
		l.serveReady()
		forget()
		if !tr.forgotten || tr.busy {
			t.Fatalf("at work: %t: the key is forgotten: %t, busy: %t", atWork, tr.forgotten, tr.busy)
		}
		if n := l.dropped(dropMemory) + l.dropped(dropShard); n != 12 {
			t.Errorf("at work: %t: %v requests are counted as lost, want 12 of 20: 8 were sent", atWork, n)
		}
	}
}
