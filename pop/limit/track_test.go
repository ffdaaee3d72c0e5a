package limit

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

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

// plan is what next says, without the limits.
type plan struct {
	Sends  [][3]int64 // place, window number, delta
	Reads  []int
	Record bool

	Formers []string // addresses
}

// next takes the work of t.
func next(t *track, now time.Time) (j job, p plan) {
	j, _ = t.next(now, sendersOf(0), job{})
	at := func(s slot) int {
		return slices.IndexFunc(t.windows, func(w window) bool { return w.limit == s.limit })
	}
	for _, s := range j.sends {
		p.Sends = append(p.Sends, [3]int64{int64(at(s.slot)), s.number, int64(s.delta)})
	}
	for _, s := range j.reads {
		p.Reads = append(p.Reads, at(s))
	}
	for i := range j.formers {
		p.Formers = append(p.Formers, j.formers[i].addr())
	}
	p.Record = j.record
	return j, p
}

func wantPlan(tb testing.TB, what string, got, want plan) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s: work (-want +got):\n%s", what, diff)
	}
}

func TestAKeyIsReadWhenFirstSeenInAWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}, {threshold: 20, period: 60s}]"), at(1, 0), nil)
	tr.add(3, at(1, 0))
	j, p := next(tr, at(1, 2000))
	wantPlan(t, "the first requests", p, plan{Sends: [][3]int64{{0, 360, 3}, {1, 60, 3}}, Reads: []int{0, 1}, Record: true})
	for _, s := range j.sends {
		tr.counted(s, 3)
	}
	for i, s := range j.reads {
		if again, _ := tr.read(s, 0, at(1, 2000), 4*time.Millisecond); !again.IsZero() {
			t.Errorf("window %d is read again at %v, though it began a second ago", i, again)
		}
	}
	tr.readRecord = false
	if f := tr.evaluate(at(1, 3000)); f.over || f.near {
		t.Errorf("3 of 5 and of 20: %+v", f)
	}
	tr.add(1, at(2, 0))
	_, p = next(tr, at(2, 2000))
	wantPlan(t, "one more", p, plan{Sends: [][3]int64{{0, 360, 1}, {1, 60, 1}}})
	tr.add(1, at(10, 0))
	_, p = next(tr, at(10, 2000))
	wantPlan(t, "one in the next window of the first limit", p, plan{Sends: [][3]int64{{0, 361, 1}, {1, 60, 1}}, Reads: []int{0}, Record: true})
}

func TestLateCountsGoToTheirWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}]"), at(9, 0), nil)
	tr.add(2, at(9, 0))
	tr.add(1, at(10, 0))
	tr.add(4, at(9, 0)) // flushed after the edge
	_, p := next(tr, at(10, 1000))
	wantPlan(t, "around an edge", p, plan{Sends: [][3]int64{{0, 360, 6}, {0, 361, 1}}, Reads: []int{0}, Record: true})
	tr.add(7, at(-11, 0))
	if late := tr.late(); late != 7 {
		t.Errorf("%d requests came too late for any window, want 7", late)
	}
}

// Other nodes may still count in the previous window when it is read first.
func TestPrevIsReadOnceMore(t *testing.T) {
	const catchUp = 4 * time.Millisecond
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}]"), at(10, 500), nil)
	tr.add(1, at(10, 0))
	j, _ := next(tr, at(10, 1000))
	tr.counted(j.sends[0], 1)
	again, _ := tr.read(slot{tr.windows[0].limit, tr.windows[0].number - 1}, 3, at(10, 1000), catchUp)
	if want := at(10, 4000); !again.Equal(want) {
		t.Errorf("read again at %v, want %v", again, want)
	}
	tr.readRecord = false
	if _, p := next(tr, at(10, 3999)); p.Reads != nil {
		t.Errorf("read again a microsecond too early: %+v", p)
	}
	_, p := next(tr, at(10, 4000))
	wantPlan(t, "after the others have caught up", p, plan{Reads: []int{0}})
	if again, _ := tr.read(slot{tr.windows[0].limit, tr.windows[0].number - 1}, 9, at(10, 4000), catchUp); !again.IsZero() {
		t.Errorf("read a third time at %v", again)
	}
	if f := tr.evaluate(at(10, 5000)); !f.over || f.why.Prev != 9 || f.why.Cur != 1 {
		t.Errorf("9 and 1 of 5: %+v", f)
	}
}

// Between two evaluations the previous window loses weight. Where another node counted
// meanwhile, it may have seen the estimate over.
func TestTheRecordIsReadWhereAnotherNodeMaySeeMore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		others uint64
		want   bool
	}{
		{"nobody else counted", 0, false},
		{"another node counted 2", 2, true},
	} {
		tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 10, period: 10s}]"), at(10, 0), nil)
		tr.add(1, at(10, 0))
		j, _ := next(tr, at(10, 10_000))
		tr.counted(j.sends[0], 1)
		tr.read(slot{tr.windows[0].limit, tr.windows[0].number - 1}, 8, at(10, 10_000), 0)
		tr.readRecord = false
		if f := tr.evaluate(at(10, 10_000)); f.over {
			t.Fatalf("%s: 8 and 1 of 10: %+v", tt.name, f)
		}
		tr.add(1, at(13, 0))
		j, _ = next(tr, at(13, 0))
		tr.counted(j.sends[0], 2+tt.others)
		// 8×0.7+4 = 9.6 now; 8×0.999+4 was 11.99.
		if f := tr.evaluate(at(13, 0)); f.over {
			t.Fatalf("%s: %+v", tt.name, f)
		}
		if tr.readRecord != tt.want {
			t.Errorf("%s: the record is to be read: %t, want %t", tt.name, tr.readRecord, tt.want)
		}
	}
}

func TestTheLastLimitToBeBackDecidesTheEnd(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}, {threshold: 6, period: 60s}]"), at(1, 0), nil)
	tr.add(10, at(1, 0))
	f := tr.evaluate(at(1, 0))
	if !f.over || f.why.Limit.Threshold != 6 {
		t.Fatalf("10 of 5 in 10s and of 6 in 60s: %+v, want the second limit", f)
	}
	// 10 requests weigh 6 when 4/10 of the next minute have passed.
	if want := at(84, 0); !f.back.Equal(want) {
		t.Errorf("back at %v, want %v", f.back, want)
	}
}

func TestNear(t *testing.T) {
	for _, tt := range []struct {
		requests uint64
		want     bool
	}{{43, false}, {44, true}, {50, true}} {
		tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}]"), at(1, 0), nil)
		tr.add(tt.requests, at(1, 0))
		if f := tr.evaluate(at(1, 0)); f.near != tt.want {
			t.Errorf("%d of 50: near = %t, want %t", tt.requests, f.near, tt.want)
		}
	}
}

// Where the clock is set back by windows, counting begins anew; by less, it goes on.
func TestAClockThatIsSetBack(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}]"), at(30, 0), nil)
	tr.add(5, at(30, 0))
	tr.add(1, at(25, 0))
	if f := tr.evaluate(at(25, 0)); !f.over {
		t.Error("6 of 5 are not over, seen from the window before")
	}
	tr.add(1, at(15, 0)) // belongs to no window that is kept
	if late := tr.late(); late != 1 {
		t.Errorf("%d requests were too late, want 1", late)
	}
	if f := tr.evaluate(at(15, 0)); f.over {
		t.Errorf("6 of 5, seen from two windows before: %+v", f)
	}
	if late := tr.late(); late != 6 {
		t.Errorf("%d requests of a wrong time are lost, want 6", late)
	}
	tr.add(6, at(15, 0))
	if f := tr.evaluate(at(15, 0)); !f.over {
		t.Error("6 of 5 are not over after the clock was set back")
	}
}

func TestSetRule(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}, {threshold: 90, period: 60s}]"), at(1, 0), nil)
	tr.add(10, at(1, 0))
	tr.setRule(newRule(t, "[{threshold: 60, period: 60s}, {threshold: 9, period: 10s}, {threshold: 9, period: 30s}]"), at(2, 0), nil)
	f := tr.evaluate(at(2, 0))
	if !f.over || f.why.Limit.Period != 10e6 || f.why.Cur != 10 {
		t.Errorf("a threshold that is lowered to 9 finds 10 requests: %+v", f)
	}
	_, p := next(tr, at(2, 0))
	want := plan{Sends: [][3]int64{{0, 60, 10}, {1, 360, 10}}, Reads: []int{0, 1}, Record: true}
	wantPlan(t, "after the change", p, want)
}

// The reply to an increment finds its window, whatever a reload did to the order of the
// limits meanwhile.
func TestSetRuleWhileCounting(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}, {threshold: 90, period: 60s}]"), at(1, 0), nil)
	tr.add(10, at(1, 0))
	j, _ := next(tr, at(1, 0))
	tr.setRule(newRule(t, "[{threshold: 90, period: 60s}, {threshold: 50, period: 10s}]"), at(1, 0), nil)
	for _, s := range j.sends {
		tr.counted(s, 12)
	}
	for _, w := range tr.windows {
		if known := w.cur.known(counter.Plain); known != 12 {
			t.Errorf("of the limit %+v %d requests are known, want 12: %+v", w.limit, known, w.cur)
		}
	}
}

func TestTally(t *testing.T) {
	type step struct {
		do    func(*tally)
		known uint64
	}
	pending := func(n uint64) func(*tally) { return func(t *tally) { t.pending += n } }
	sent := func(t *tally) { t.send(counter.Plain, 0) }
	reply := func(number, delta uint64) func(*tally) {
		return func(t *tally) { t.counted(counter.Plain, number, delta) }
	}
	unknown := func(delta uint64) func(*tally) { return func(t *tally) { t.unknown(counter.Plain, delta) } }
	unsent := func(delta uint64) func(*tally) { return func(t *tally) { t.unsent(counter.Plain, delta) } }
	read := func(n uint64) func(*tally) { return func(t *tally) { t.read(counter.Plain, n) } }
	for name, steps := range map[string][]step{
		"counted":                                {{pending(3), 3}, {sent, 3}, {reply(10, 3), 10}},
		"more came while it was sent":            {{pending(3), 3}, {sent, 3}, {pending(2), 5}, {reply(10, 3), 12}},
		"unsent and sent again":                  {{pending(3), 3}, {sent, 3}, {pending(2), 5}, {unsent(3), 5}, {sent, 5}, {reply(5, 5), 5}},
		"unknown, and it was not counted":        {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {pending(2), 5}, {sent, 5}, {reply(2, 2), 5}},
		"unknown, and it was counted":            {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {pending(2), 5}, {sent, 5}, {reply(5, 2), 5}},
		"unknown, others are counted as well":    {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {pending(2), 5}, {sent, 5}, {reply(9, 2), 9}},
		"the shard lost what it had":             {{pending(3), 3}, {sent, 3}, {reply(10, 3), 10}, {pending(1), 11}, {sent, 11}, {reply(1, 1), 11}, {pending(1), 12}, {sent, 12}, {reply(4, 1), 14}},
		"lost, with as much as there was before": {{pending(5), 5}, {sent, 5}, {reply(5, 5), 5}, {pending(6), 11}, {sent, 11}, {reply(6, 6), 11}},
		"read":                                   {{read(7), 7}, {pending(1), 8}, {read(9), 10}},
		"read less than was known":               {{pending(3), 3}, {sent, 3}, {reply(10, 3), 10}, {read(4), 10}},
		"read while the outcome is unknown":      {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {read(2), 3}, {read(7), 7}},
	} {
		var tl tally
		for i, s := range steps {
			if s.do(&tl); tl.known(counter.Plain) != s.known {
				t.Errorf("%s: after step %d known = %d, want %d (%+v)", name, i+1, tl.known(counter.Plain), s.known, tl)
			}
		}
	}
}

// A reload changes the order of a rule's limits while an increment is in flight: its reply
// belongs to the limit, not to the place.
func TestLimitsThatChangePlacesAreNotCountedTwice(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 100, period: 60s}, {threshold: 10, period: 10s}]"), at(8, 0), nil)
	tr.add(6, at(8, 0))
	j, _ := next(tr, at(8, 1000))
	tr.setRule(newRule(t, "[{threshold: 10, period: 10s}, {threshold: 100, period: 60s}]"), at(8, 1500), nil)
	for _, s := range j.sends {
		tr.counted(s, 6)
	}
	tr.add(1, at(10, 0))
	j, _ = next(tr, at(10, 1000))
	for _, s := range j.sends {
		tr.counted(s, s.delta)
	}
	for _, s := range j.reads {
		tr.read(s, 6, at(10, 1000), 0)
	}
	if f := tr.evaluate(at(10, 2000)); f.over {
		t.Errorf("6 requests and 1 request are over a limit of 10: %v", f.why)
	}
}

// The same, where the shard did not take the increment.
func TestLimitsThatChangePlacesLoseNothing(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 100, period: 60s}, {threshold: 10, period: 10s}]"), at(8, 0), nil)
	tr.add(6, at(8, 0))
	j, _ := next(tr, at(8, 1000))
	tr.setRule(newRule(t, "[{threshold: 10, period: 10s}, {threshold: 100, period: 60s}]"), at(8, 1500), nil)
	for _, s := range j.sends {
		tr.unsent(s)
	}
	if n := tr.unsentRequests() + tr.late(); n != 12 {
		t.Errorf("%d requests are to be sent or counted as lost, want 2·6", n)
	}
}

// An increment that comes back not sent after its window has passed is counted as lost.
func TestUnsentAfterItsWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 10, period: 1s}]"), at(0, 0), nil)
	tr.add(6, at(0, 0))
	j, _ := next(tr, at(1, 999_000)) // the previous window, just before it is too late
	tr.add(1, at(2, 0))              // meanwhile another request rolls the windows
	for _, s := range j.sends {
		tr.unsent(s)
	}
	if n := tr.unsentRequests() + tr.late(); n != 7 {
		t.Errorf("%d requests are to be sent or counted as lost, want 7", n)
	}
}

// The clock jumps ahead and is set right again: what comes then is counted.
func TestAClockThatIsAheadForAMoment(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 10, period: 10s}]"), at(0, 0), nil)
	tr.add(1, at(100, 0)) // 100 s ahead
	next(tr, at(100, 0))
	tr.advance(at(1, 0)) // right again
	tr.add(50, at(1, 0))
	next(tr, at(1, 1000))
	if f := tr.evaluate(at(1, 2000)); !f.over {
		t.Errorf("50 requests are not over a limit of 10 (%d lost as late)", tr.late())
	}
}

// A reload that takes a limit away, or leaves a layout behind for longer than it matters, loses
// what was not sent yet. That is counted.
func TestWhatAReloadLosesIsCounted(t *testing.T) {
	before := newRule(t, "[{threshold: 100, period: 60s}, {threshold: 10, period: 10s}]")
	tr := newTrack(counter.Key{}, before, at(8, 0), nil)
	tr.add(6, at(8, 0))
	tr.setRule(newRule(t, "[{threshold: 96, period: 60s, sub_windows: 6}]"), at(8, 0), []outdated{
		{before.Limits[0].Counted(), at(13, 0), at(73, 0)},
	})
	if n := tr.late(); n != 6 {
		t.Errorf("%d requests are lost with a limit, want 6", n)
	}
	tr.advance(at(72, 0))
	if n, kept := tr.late(), tr.unsentRequests(); n != 0 || kept != 6 {
		t.Errorf("%d requests are lost and %d kept of an outdated layout, want 0 and 6", n, kept)
	}
	tr.advance(at(73, 0))
	if n, kept := tr.late(), tr.unsentRequests(); n != 6 || kept != 0 {
		t.Errorf("%d requests are lost and %d kept after that, want 6 and 0", n, kept)
	}
}

// A layout that comes back is read anew: other nodes may have counted in it before.
func TestALayoutThatComesBackIsReadAnew(t *testing.T) {
	whole, sixths := newRule(t, "[{threshold: 100, period: 60s}]"), newRule(t, "[{threshold: 96, period: 60s, sub_windows: 6}]")
	tr := newTrack(counter.Key{}, whole, at(8, 0), nil)
	tr.add(6, at(8, 0))
	next(tr, at(8, 0))
	tr.setRule(sixths, at(9, 0), []outdated{{whole.Limits[0].Counted(), at(14, 0), at(74, 0)}})
	tr.add(1, at(61, 0))
	j, _ := next(tr, at(61, 0))
	for _, s := range j.reads {
		tr.read(s, 0, at(61, 0), 0)
	}
	tr.setRule(whole, at(62, 0), []outdated{{sixths.Limits[0].Counted(), at(67, 0), at(127, 0)}})
	tr.add(1, at(62, 0))
	if j, _ := next(tr, at(62, 0)); len(j.reads) != 3 || j.reads[0] != (slot{whole.Limits[0].Counted(), 60}) {
		t.Errorf("read are %+v, want the window before, and two in sixths", j.reads)
	}
}

// Evaluating a key takes no memory, also in more than one layout.
func TestEvaluatingAllocatesNothing(t *testing.T) {
	whole, sixths := newRule(t, "[{threshold: 96, period: 60s}]"), newRule(t, "[{threshold: 96, period: 60s, sub_windows: 6}]")
	tr := newTrack(counter.Key{}, whole, at(8, 0), nil)
	tr.add(60, at(8, 0))
	tr.setRule(sixths, at(9, 0), []outdated{{whole.Limits[0].Counted(), at(14, 0), at(74, 0)}})
	tr.add(60, at(61, 0))
	if n := testing.AllocsPerRun(100, func() {
		if f := tr.evaluate(at(61, 0)); !f.over {
			t.Fatal("60 and 60 requests are not over 96")
		}
	}); n != 0 {
		t.Errorf("evaluating allocates %v times, want 0", n)
	}
}
