package analysis

import (
	"fmt"
	"net/netip"
	"testing"
)

// A timeline covers the whole log, in at most maxPoints points.
func TestTimeline(t *testing.T) {
	for _, tt := range []struct {
		seconds, step int64
		points        int
	}{{1, 1, 1}, {240, 1, 240}, {241, 2, 121}, {2400, 10, 240}, {100_000, 600, 167}} {
		var l TimelineCollector
		for second := range tt.seconds {
			l.Add((1e9-400+second)*1e6, second%2 == 0)
		}
		r := l.Timeline()
		var requests, refused uint64
		for _, p := range r.Points {
			requests, refused = requests+p.Requests, refused+p.Refused
		}
		if r.StepS != tt.step || len(r.Points) != tt.points || requests != uint64(tt.seconds) || refused != uint64(tt.seconds+1)/2 || r.From.Unix()%tt.step != 0 {
			t.Errorf("%d s: %d parts of %d s from %v with %d requests, %d refused", tt.seconds, len(r.Points), r.StepS, r.From, requests, refused)
		}
	}
	// A pause of years costs no work.
	var l TimelineCollector
	l.Add(0, false)
	l.Add(1e9*1e6, false)
	if r := l.Timeline(); len(l.ticks) > maxTicks || len(r.Points) > maxPoints || r.Points[len(r.Points)-1].Requests != 1 {
		t.Errorf("%d ticks and %d points after a pause", len(l.ticks), len(r.Points))
	}
}

// A bounded number of clients is watched, including those with the most refusals.
func TestWatch(t *testing.T) {
	var w watch
	busy, late := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	name := func(s string) func() string { return func() string { return s } }
	for i := range int64(10_000) {
		w.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), name(fmt.Sprint(i)), i*1e6, false, 0)
		w.add(busy, name("busy"), i*1e6, i%2 == 0, (i+1)*1e6)
	}
	for range 5 {
		w.add(late, name("late"), 10_000*1e6, true, 10_001*1e6)
	}
	r := w.report(func(s string) string { return s })
	if len(w.clients) > watchedClients || len(r.Top) != namedClients {
		t.Fatalf("%d clients are watched, %d named", len(w.clients), len(r.Top))
	}
	first, second := r.Top[0], r.Top[1]
	if first.Client != "busy" || first.Refused != 5000 || first.Requests != 10_000 || first.Partial || second.Client != "late" || !second.Partial {
		t.Errorf("first %s with %d of %d refused, second %s", first.Client, first.Refused, first.Requests, second.Client)
	}
	var requests uint64
	for i := range first.Passed {
		requests += first.Passed[i] + first.Stopped[i]
		if !first.Held[i] && first.Stopped[i] > 0 {
			t.Errorf("step %d has refusals without a mitigation", i)
		}
	}
	if requests != first.Requests {
		t.Errorf("steps have %d requests of %d", requests, first.Requests)
	}
}

// However many mitigations a client has had, a step is marked if and only if the client was mitigated in it.
func TestWatchedMitigations(t *testing.T) {
	for _, n := range []int64{1, 300, 500, 5000} {
		var w watch
		mitigated := map[int64]bool{} // by second
		add := func(now int64, refused bool) {
			until := now + 30
			w.add(netip.MustParseAddr("192.0.2.1"), func() string { return "a" }, now*1e6, refused, until*1e6)
			for ; refused && now <= until; now++ {
				mitigated[now] = true
			}
		}
		now := int64(1e9)
		for range n { // a mitigation each minute
			add(now, true)
			now += 60
		}
		for range n { // then none for as long, and another one
			add(now, false)
			now += 60
		}
		add(now, true)
		r := w.report(func(s string) string { return s })
		for at, held := range r.Top[0].Held {
			want := false
			for second := range r.StepS {
				want = want || mitigated[r.From.Unix()+int64(at)*r.StepS+second]
			}
			if held != want {
				t.Errorf("%d mitigations, step %d of %d: mitigated %v, want %v", n, at, len(r.Top[0].Held), held, want)
			}
		}
	}
}
