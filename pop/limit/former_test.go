package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// What is known of a window is the sum over the shards that owned the key, each counted
// once.
func TestTallyMoves(t *testing.T) {
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
	move := func(from, to string) func(*tally) { return func(t *tally) { t.move(from, to) } }
	former := func(shard string, n uint64) func(*tally) {
		return func(t *tally) { t.readFormer(counter.Plain, shard, n) }
	}
	for name, steps := range map[string][]step{
		"A to B":                     {{pending(3), 3}, {sent, 3}, {reply(10, 3), 10}, {move("a", "b"), 10}, {pending(1), 11}, {sent, 11}, {reply(1, 1), 11}},
		"others counted at A":        {{read(10), 10}, {move("a", "b"), 10}, {former("a", 14), 14}, {former("a", 12), 14}},
		"only others counted at A":   {{move("a", "b"), 0}, {former("a", 0), 0}, {former("a", 4), 4}, {read(3), 7}},
		"what waited goes to B":      {{pending(3), 3}, {sent, 3}, {unsent(3), 3}, {move("a", "b"), 3}, {sent, 3}, {reply(3, 3), 3}},
		"unknown at A, not counted":  {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {move("a", "b"), 3}, {former("a", 0), 3}, {read(2), 5}},
		"unknown at A, was counted":  {{pending(3), 3}, {sent, 3}, {unknown(3), 3}, {move("a", "b"), 3}, {former("a", 3), 3}, {read(2), 5}},
		"A to B and back":            {{read(10), 10}, {move("a", "b"), 10}, {read(5), 15}, {move("b", "a"), 15}, {pending(1), 16}, {sent, 16}, {reply(11, 1), 16}},
		"back, others counted at A":  {{read(10), 10}, {move("a", "b"), 10}, {read(5), 15}, {move("b", "a"), 15}, {pending(1), 16}, {sent, 16}, {reply(14, 1), 19}},
		"back, A's memory is lost":   {{read(10), 10}, {move("a", "b"), 10}, {read(5), 15}, {move("b", "a"), 15}, {pending(1), 16}, {sent, 16}, {reply(1, 1), 16}, {pending(1), 17}, {sent, 17}, {reply(4, 1), 19}},
		"back, and B again":          {{read(10), 10}, {move("a", "b"), 10}, {read(5), 15}, {move("b", "a"), 15}, {move("a", "b"), 15}, {former("a", 12), 17}, {pending(1), 18}, {sent, 18}, {reply(6, 1), 18}},
		"A to B to C":                {{read(10), 10}, {move("a", "b"), 10}, {read(5), 15}, {move("b", "c"), 15}, {read(2), 17}, {former("a", 11), 18}, {former("b", 6), 19}},
		"nothing was known anywhere": {{move("", "a"), 0}, {move("a", "b"), 0}, {read(2), 2}},
	} {
		var tl tally
		for i, s := range steps {
			if s.do(&tl); tl.known(counter.Plain) != s.known {
				t.Errorf("%s: after step %d known = %d, want %d (%+v)", name, i+1, tl.known(counter.Plain), s.known, tl)
			}
		}
	}
}

const testSettle = time.Second

// testLanes returns lanes that lead nowhere.
func testLanes(names ...string) (lanes []*lane) {
	for _, name := range names {
		lanes = append(lanes, newLane(counter.NewShard(name, counter.ShardOptions{}), minLaneSize))
	}
	return lanes
}

// placed returns the placement after before, with some shards out.
func placed(tb testing.TB, lanes []*lane, before *placement, now time.Time, out ...string) *placement {
	tb.Helper()
	p, err := newPlacement(lanes, out, before, now)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// put tells t of p, and returns when former owners are to be read again.
func put(tb testing.TB, t *track, p *placement, now time.Time) []time.Time {
	tb.Helper()
	ln, err := p.ring.Owner(t.key)
	if err != nil {
		tb.Fatal(err)
	}
	return t.place(p, ln, now, testSettle, false)
}

// The former owner's counters are read when the change is noticed, and when no node counts
// there any more; those of the current window and the one before, while they matter.
func TestFormerOwnersAreRead(t *testing.T) {
	lanes := testLanes("a:1", "b:1")
	first := placed(t, lanes, nil, at(0, 0))
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}]"), at(1, 0), nil)
	put(t, tr, first, at(1, 0))
	home := tr.owner
	tr.add(3, at(1, 0))
	j, _ := next(tr, at(1, 0))
	tr.counted(j.sends[0], 7)
	tr.read(j.reads[0], 0, at(1, 0), 0)
	tr.readRecord = false

	// The change, at 4.5 s, is noticed half a second later.
	second := placed(t, lanes, first, at(4, 500_000), home)
	if again := put(t, tr, second, at(5, 0)); !slices.Equal(again, []time.Time{at(5, 500_000)}) {
		t.Errorf("former owners are read again at %v, want a second after the change", again)
	}
	tr.add(1, at(5, 0))
	j, p := next(tr, at(5, 0))
	wantPlan(t, "after the change", p, plan{Sends: [][3]int64{{0, 360, 1}}, Reads: []int{0}, Record: true, Formers: []string{home}})
	var numbers []int64
	for _, read := range tr.formerReads(&j.formers[0]) {
		numbers = append(numbers, read.number)
	}
	if diff := cmp.Diff([]int64{359, 360}, numbers); diff != "" {
		t.Errorf("windows that are read (-want +got):\n%s", diff)
	}
	tr.counted(j.sends[0], 1)
	tr.read(j.reads[0], 0, at(5, 0), 0)
	tr.readRecord = false
	tr.readFormer(&j.formers[0], tr.formerReads(&j.formers[0])[1], 9)
	tr.triedFormer(&j.formers[0], at(5, 0), true)
	if got := tr.windows[0].cur.known(counter.Plain); got != 10 {
		t.Errorf("known = %d, want 9 at the former owner and 1 at the new one", got)
	}
	if _, p := next(tr, at(5, 499_999)); p.Formers != nil {
		t.Errorf("read again before the others have caught up: %+v", p)
	}
	j, p = next(tr, at(5, 500_000))
	wantPlan(t, "once it has settled", p, plan{Reads: []int{0}, Formers: []string{home}})
	tr.readFormer(&j.formers[0], tr.formerReads(&j.formers[0])[1], 12)
	tr.triedFormer(&j.formers[0], at(5, 500_000), true)
	tr.read(j.reads[0], 0, at(5, 500_000), 0)
	if _, p := next(tr, at(6, 0)); p.Formers != nil {
		t.Errorf("read a third time: %+v", p)
	}

	// The window rolls: what was counted at two owners is the previous number.
	tr.add(1, at(10, 0))
	_, p = next(tr, at(10, 0))
	wantPlan(t, "in the next window", p, plan{Sends: [][3]int64{{0, 361, 1}}, Reads: []int{0}, Record: true})
	if got := tr.windows[0].prev.known(counter.Plain); got != 13 {
		t.Errorf("prev = %d, want 12 at the former owner and 1 at the new one", got)
	}

	// A key that is first seen now must know of the former owner, in the window after that
	// no more.
	for _, tt := range []struct {
		name string
		now  time.Time
		want []string
	}{
		{"in the window after the change", at(19, 0), []string{home}},
		{"two windows after the change", at(20, 0), nil},
	} {
		tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}]"), tt.now, nil)
		put(t, tr, second, tt.now)
		tr.add(1, tt.now)
		if _, p := next(tr, tt.now); !slices.Equal(p.Formers, tt.want) {
			t.Errorf("%s: former owners %v are read, want %v", tt.name, p.Formers, tt.want)
		}
	}
	tr = newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}], mitigation_timeout: 1h"), at(600, 0), nil)
	put(t, tr, second, at(600, 0))
	if _, p := next(tr, at(600, 0)); !slices.Equal(p.Formers, []string{home}) {
		t.Errorf("former owners %v are read for a record, want %v", p.Formers, []string{home})
	}
}

// A former owner that does not answer is asked again with a later count, and no more once
// its counts have passed.
func TestAFormerOwnerThatIsDead(t *testing.T) {
	lanes := testLanes("a:1", "b:1")
	first := placed(t, lanes, nil, at(0, 0))
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}]"), at(1, 0), nil)
	put(t, tr, first, at(1, 0))
	tr.add(7, at(1, 0))
	j, _ := next(tr, at(1, 0))
	tr.counted(j.sends[0], 7)
	put(t, tr, placed(t, lanes, first, at(2, 0), tr.owner), at(2, 0))
	asked := []time.Duration{}
	for now := at(2, 0); now.Before(at(30, 0)); now = now.Add(100 * time.Millisecond) {
		j, _ := next(tr, now)
		for i := range j.formers {
			asked = append(asked, now.Sub(at(2, 0)))
			tr.triedFormer(&j.formers[i], now, false)
		}
		for _, s := range j.reads {
			tr.read(s, 0, now, 0)
		}
		if known := tr.windows[0].cur.known(counter.Plain); now.Before(at(10, 0)) && known != 7 {
			t.Fatalf("known = %d, want the last reply, 7", known)
		}
	}
	if len(asked) != 18 || asked[0] != 0 || asked[1] != time.Second || asked[17] != 17*time.Second {
		t.Errorf("asked after %v, want once in a second until the next window has passed", asked)
	}
}

// A modelNode is a track with what its node believes of the shards.
type modelNode struct {
	track  *track
	placed *placement
}

// A model is several nodes that count requests of one key in shards that are maps.
type model struct {
	t      *rapid.T
	now    time.Time
	faults bool
	lanes  []*lane
	shards map[string]map[counted]uint64 // numbers
	nodes  []*modelNode
	made   map[counted]uint64 // requests, as numbers
	rules  *rules             // in force
}

// What is counted in one number.
type counted struct {
	period int64
	layout counter.Layout
	window int64
}

func countedIn(s slot) counted { return counted{s.limit.Period, s.limit.Layout, s.number} }

func (m *model) request(n *modelNode, requests uint64) {
	n.track.add(requests, m.now)
	for i := range n.track.windows {
		if w := &n.track.windows[i]; !w.outdated() {
			number, elapsed := counter.Window(m.now, w.limit.Period)
			at := countedIn(slot{w.limit, number})
			m.made[at] = w.limit.Layout.Add(m.made[at], w.limit.Delta(requests, elapsed))
		}
	}
}

// reload lets one node after the other load other rules. Requests go on.
func (m *model) reload() {
	m.draw()
	r := m.rules.set.Rules()[0]
	for _, n := range m.nodes {
		n.track.setRule(r, m.now, m.rules.outdated[r])
		m.count()
	}
}

// draw puts rules with other sub-windows, or the same, in force.
func (m *model) draw() {
	set, err := rule.Parse("rules.yaml", fmt.Appendf(nil,
		"rules: [{id: r, characteristics: [ip], limits: [{threshold: 50, period: 3s, sub_windows: %d}, {threshold: 90, period: 10s, sub_windows: %d}]}]",
		rapid.IntRange(1, 3).Draw(m.t, "sub-windows of 3 s"), rapid.IntRange(1, 6).Draw(m.t, "sub-windows of 10 s")))
	if err != nil {
		m.t.Fatal(err)
	}
	m.rules = &rules{set: set, outdated: m.rules.outdatedBy(set, m.now)}
}

// work does what there is to do for a node, and lets it fail where there are faults.
func (m *model) work(n *modelNode) {
	for {
		ln, err := n.placed.ring.Owner(n.track.key)
		if err != nil {
			return
		}
		if n.track.change != n.placed.change {
			n.track.place(n.placed, ln, m.now, testSettle, false)
		}
		j, any := n.track.next(m.now, sendersOf(0), job{})
		if !any {
			return
		}
		numbers := m.shards[ln.shard.Addr()]
		retry := false
		for _, s := range j.sends {
			at := countedIn(s.slot)
			switch outcome := m.outcome(); outcome {
			case "ok":
				numbers[at] += s.delta
				n.track.counted(s, numbers[at])
			case "unsent":
				n.track.unsent(s)
				retry = true
			case "reply lost":
				numbers[at] += s.delta
				n.track.unknown(s)
			case "request lost":
				n.track.unknown(s)
			}
		}
		for _, s := range j.reads {
			if m.outcome() == "ok" {
				n.track.read(s, numbers[countedIn(s)], m.now, 0)
			} else {
				retry = true
			}
		}
		if !retry {
			n.track.readRecord = false
		}
		for i := range j.formers {
			f := &j.formers[i]
			ok := m.outcome() == "ok"
			for _, s := range n.track.formerReads(f) {
				if ok {
					n.track.readFormer(f, s, m.shards[f.addr()][countedIn(s)])
				}
			}
			n.track.triedFormer(f, m.now, ok)
		}
		n.track.evaluate(m.now)
		m.check(n)
		if retry {
			return
		}
	}
}

func (m *model) outcome() string {
	if !m.faults {
		return "ok"
	}
	return rapid.SampledFrom([]string{"ok", "ok", "ok", "unsent", "reply lost", "request lost"}).Draw(m.t, "outcome")
}

// check compares what a node knows with what was requested.
func (m *model) check(n *modelNode) {
	for i := range n.track.windows {
		w := &n.track.windows[i]
		l := w.limit.Layout
		for number, known := range map[int64]uint64{w.number - 1: w.prev.known(l), w.number: w.cur.known(l)} {
			if made := m.made[countedIn(slot{w.limit, number})]; l.Below(made, known) != 0 {
				m.t.Fatalf("%#x is known of window %d in %v, %#x was made: %+v", known, number, l, made, n.track)
			}
		}
	}
}

// change takes shards out on all nodes, on one after the other within the time to settle.
// Requests go on.
func (m *model) change() {
	var out []string
	for _, ln := range m.lanes {
		if rapid.Bool().Draw(m.t, "out") {
			out = append(out, ln.shard.Addr())
		}
	}
	for _, n := range m.nodes {
		m.now = m.now.Add(time.Duration(rapid.Int64Range(0, int64(testSettle)/int64(len(m.nodes)+1)).Draw(m.t, "later")))
		p, err := newPlacement(m.lanes, out, n.placed, m.now)
		if err != nil {
			m.t.Fatal(err)
		}
		n.placed = p
		m.count()
	}
}

// count lets a node count some requests.
func (m *model) count() {
	n := m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(m.t, "node")]
	m.request(n, rapid.Uint64Range(1, 9).Draw(m.t, "requests"))
	m.check(n)
	if rapid.Bool().Draw(m.t, "flushed") {
		m.work(n)
	}
}

// Over random schedules of requests, moves, reloads and faults: what a node knows never exceeds
// what was requested, and with no faults it is what was requested, once everything was read.
func TestCountsOverMoves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			t: rt, now: at(0, rapid.Int64Range(0, 30e6).Draw(rt, "phase")), faults: rapid.Bool().Draw(rt, "faults"),
			shards: map[string]map[counted]uint64{}, made: map[counted]uint64{},
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "shards") {
			m.lanes = append(m.lanes, testLanes(fmt.Sprintf("s%d:1", i))...)
			m.shards[fmt.Sprintf("s%d:1", i)] = map[counted]uint64{}
		}
		key := counter.Key{byte(rapid.IntRange(0, 255).Draw(rt, "key"))}
		m.draw()
		for range rapid.IntRange(1, 3).Draw(rt, "nodes") {
			m.nodes = append(m.nodes, &modelNode{track: newTrack(key, m.rules.set.Rules()[0], m.now, nil), placed: placed(t, m.lanes, nil, m.now)})
		}
		changes := 0
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 800).Draw(rt, "ms")) * time.Millisecond)
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what == 0 && changes < maxPast-1:
				changes++
				m.change()
			case what == 1 && m.faults:
				clear(m.shards[m.lanes[rapid.IntRange(0, len(m.lanes)-1).Draw(rt, "restarts")].shard.Addr()])
			case what == 2:
				m.reload()
			default:
				m.count()
			}
		}
		if m.faults {
			return
		}
		// Everything comes in, and settles.
		for _, n := range m.nodes {
			if len(n.placed.in) == 0 {
				n.placed = placed(t, m.lanes, n.placed, m.now)
			}
			m.work(n)
		}
		m.now = m.now.Add(max(testSettle, rulesSettle))
		for _, n := range m.nodes {
			m.request(n, 1)
			m.work(n)
		}
		last := m.nodes[len(m.nodes)-1].track
		for i := range last.windows {
			w := &last.windows[i]
			m.want(w, w.number, &w.cur)
		}
		m.now = m.now.Add(10 * time.Second)
		for _, n := range m.nodes {
			m.request(n, 1)
			m.work(n)
			for i := range n.track.windows {
				if w := &n.track.windows[i]; w.limit.Period == 10e6 {
					m.want(w, w.number-1, &w.prev)
				}
			}
		}
	})
}

// want wants all requests of a window to be known.
func (m *model) want(w *window, number int64, t *tally) {
	known, made := t.known(w.limit.Layout), m.made[countedIn(slot{w.limit, number})]
	if known != made {
		m.t.Fatalf("%#x is known of window %d in %v, %#x was made: %+v", known, number, w.limit.Layout, made, t)
	}
}
