package limit

import (
	"sync"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A track is what a node knows of the counts of one key. It does no input or output:
// next says what is to be sent and read, counted and read take in the answers.
type track struct {
	key counter.Key

	mu         sync.Mutex // guards what follows
	rule       *rule.Rule
	windows    []window // one for each of the rule's limits, then those of outdated layouts
	sample     mitigation.Sample
	readRecord bool // another node may have mitigated the key
	store      bool // the record is to be stored in the shard
	busy       bool // in a lane: queued, at work, or parked
	parked     bool // the shard did not take it; it is tried again soon
	forgotten  bool // another key has its place

	// Who owns the key is told by place, which whoever makes t busy calls.
	change  uint64   // of the placement that is known
	owner   string   // address of the shard; empty if there was none yet
	formers []former // shards that owned the key and still matter, the last one first
}

// A window is the current window of one limit, and the previous one.
type window struct {
	limit     counter.Limit
	number    int64 // of the current window
	prev, cur tally
	fresh     bool  // prev was not read yet
	again     int64 // elapsed at which prev is to be read once more; 0: it is final
	seen      int64 // elapsed when it was last evaluated; -1: not yet
	others    bool  // other nodes have counted since then
	late      uint64
	full      uint64 // requests of sub-windows that are not counted further
	alone     uint64 // requests that only this node counts: there are too many nodes

	// Of an outdated layout nothing is counted any more. See outdated.
	until   time.Time // zero: the layout is that of the rule
	settled time.Time
	due     bool // it is to be read
}

// outdated reports whether the layout is another one than that of the rule.
func (w *window) outdated() bool { return !w.until.IsZero() }

// newTrack returns the track of key, counted by r, at now.
func newTrack(key counter.Key, r *rule.Rule, now time.Time, outdated []outdated) *track {
	t := &track{key: key}
	t.setRule(r, now, outdated)
	return t
}

// setRule lets t be counted by r, which may be another version of its rule. Limits that
// keep their period and layout keep their counts; those of outdated layouts are still read.
func (t *track) setRule(r *rule.Rule, now time.Time, outdated []outdated) {
	if t.rule == r {
		return
	}
	windows := make([]window, 0, len(r.Limits)+len(outdated))
	for _, l := range r.Limits {
		w := t.window(l.Counted(), now)
		w.fresh = w.fresh || w.outdated() // others may have come back to it before
		w.until, w.settled, w.due = time.Time{}, time.Time{}, false
		windows = append(windows, w)
	}
	for _, o := range outdated {
		limit, _ := countedAs(r, o.limit)
		o.limit.Threshold = limit.Threshold
		w := t.window(o.limit, now)
		w.until, w.settled, w.fresh, w.due = o.until, o.settled, true, true
		windows = append(windows, w)
	}
	// Other limits may need other counters of former owners.
	t.change, t.formers = 0, nil
	before := t.windows
	t.rule, t.windows = r, windows
	for i := range before {
		if w, _ := t.find(slot{limit: before[i].limit}); w == nil {
			t.leave(&before[i])
		}
	}
}

// leave takes note of what is given up with w, which is not among the windows any more.
func (t *track) leave(w *window) {
	t.windows[0].late += w.late + w.unsent()
	t.windows[0].full += w.full
}

// window returns the windows of limit: those that t has, with their counts, or new ones.
func (t *track) window(limit counter.Limit, now time.Time) window {
	number, _ := counter.Window(now, limit.Period)
	w := window{number: number, fresh: true, seen: -1}
	for _, old := range t.windows {
		if sameCounters(old.limit, limit) {
			w = old
		}
	}
	w.limit = limit
	return w
}

// forget forgets what was counted: the mitigation that came of it was lifted.
func (t *track) forget() {
	for i := range t.windows {
		w := &t.windows[i]
		w.prev.forget()
		w.cur.forget()
		w.fresh, w.again, w.seen, w.others = true, 0, -1, false
	}
	t.store = false
}

// add counts n requests that arrived at a time: now, or a little earlier.
func (t *track) add(n uint64, arrived time.Time) {
	for i := range t.windows {
		w := &t.windows[i]
		number, elapsed := counter.Window(arrived, w.limit.Period)
		w.roll(number)
		if w.outdated() {
			w.due = w.due || w.fresh
			continue
		}
		if tally := w.tally(number); tally != nil {
			fits := min(n, w.limit.Layout.Stop())
			w.full += n - fits + tally.add(w.limit.Layout, w.limit.Delta(fits, elapsed))
		} else {
			w.late += n
		}
	}
}

// roll makes number the current window, unless it is an older one.
func (w *window) roll(number int64) {
	switch {
	case number <= w.number:
		return
	case number == w.number+1:
		w.late += w.limit.Layout.Sum(w.prev.pending)
		w.prev, w.cur = w.cur, tally{}
	default:
		w.late += w.unsent()
		w.prev, w.cur = tally{}, tally{}
	}
	w.number, w.fresh, w.again, w.seen, w.others = number, true, 0, -1, false
}

// unsent returns how many requests are not sent.
func (w *window) unsent() uint64 {
	return w.limit.Layout.Sum(w.prev.pending) + w.limit.Layout.Sum(w.cur.pending)
}

// advance makes the window at now the current one of each limit. Where the clock was set
// back by a window or more, it begins anew: what was counted by the wrong time says nothing.
func (t *track) advance(now time.Time) {
	for i := range t.windows {
		w := &t.windows[i]
		number, _ := counter.Window(now, w.limit.Period)
		if number < w.number-1 {
			w.number = number - 2 // so that both windows have passed
		}
		w.roll(number)
	}
	t.dropOutdated(now)
}

// late returns how many requests, for each limit, were not sent before it was too late,
// since the last call.
func (t *track) late() (n uint64) {
	for i := range t.windows {
		n += t.windows[i].late
		t.windows[i].late = 0
	}
	return n
}

// full returns how many requests, for each limit, were not counted since their sub-window
// was full, since the last call.
func (t *track) full() (n uint64) {
	for i := range t.windows {
		n += t.windows[i].full
		t.windows[i].full = 0
	}
	return n
}

// alone returns how many requests, for each limit, only this node has counted, since there
// are too many nodes for its sub-windows, since the last call.
func (t *track) alone() (n uint64) {
	for i := range t.windows {
		n += t.windows[i].alone
		t.windows[i].alone = 0
	}
	return n
}

// unsentRequests returns how many requests, for each limit, are not sent.
func (t *track) unsentRequests() (n uint64) {
	for i := range t.windows {
		n += t.windows[i].unsent()
	}
	return n
}

// dropUnsent forgets the requests that are not sent and returns how many they are, for
// each limit.
func (t *track) dropUnsent() uint64 {
	n := t.unsentRequests()
	for i := range t.windows {
		t.windows[i].prev.pending, t.windows[i].cur.pending = 0, 0
	}
	return n
}

// at returns elapsed at now in the current window. If the clock was set back it is 0.
func (w *window) at(now time.Time) int64 {
	number, elapsed := counter.Window(now, w.limit.Period)
	if number < w.number {
		return 0
	}
	return elapsed
}

// tally returns what is known of a window by its number, nil if it is neither the current
// nor the previous one.
func (w *window) tally(number int64) *tally {
	switch number {
	case w.number:
		return &w.cur
	case w.number - 1:
		return &w.prev
	}
	return nil
}

// A slot is a window of a limit, which has one counter.
type slot struct {
	limit  counter.Limit
	number int64
}

// A send is an increment of one counter.
type send struct {
	slot
	delta uint64
}

// A job is what is to be done for a track at a shard, in this order.
type job struct {
	sends   []send
	reads   []slot   // counters that are read
	record  bool     // whether the record is read
	store   bool     // whether the record is stored
	formers []former // former owners that are read
}

// next takes the work that there is at now into j, which it returns, and reports whether
// there is any. So many senders count in the same numbers. What is taken must be given back
// by counted, unsent or unknown.
func (t *track) next(now time.Time, senders int, j job) (_ job, any bool) {
	j = job{sends: j.sends[:0], reads: j.reads[:0], formers: j.formers[:0]}
	var settled bool
	j.formers, settled = t.dueFormers(j.formers, now)
	t.advance(now)
	for i := range t.windows {
		w := &t.windows[i]
		budget := w.limit.Layout.Budget(senders)
		for _, number := range []int64{w.number - 1, w.number} {
			tally := w.tally(number)
			if tally.pending == 0 {
				continue
			}
			if budget == 0 { // see CheckNodes
				w.alone += tally.keep(w.limit.Layout)
				continue
			}
			delta, full := tally.send(w.limit.Layout, budget)
			if w.full += full; delta > 0 {
				j.sends = append(j.sends, send{slot{w.limit, number}, delta})
			}
		}
		if w.outdated() {
			if w.due || settled {
				j.reads = append(j.reads, slot{w.limit, w.number - 1}, slot{w.limit, w.number})
			}
			continue
		}
		first := w.fresh && w.cur.known(w.limit.Layout) > 0
		if first || settled || w.again > 0 && w.at(now) >= w.again {
			j.reads = append(j.reads, slot{w.limit, w.number - 1})
		}
		t.readRecord = t.readRecord || first
	}
	j.record, j.store = t.readRecord, t.store
	return j, len(j.sends) > 0 || len(j.reads) > 0 || j.record || j.store || len(j.formers) > 0
}

// find returns what is known of the window that s is; nil if it has passed, or the rule has
// changed.
func (t *track) find(s slot) (*window, *tally) {
	for i := range t.windows {
		if w := &t.windows[i]; sameCounters(w.limit, s.limit) {
			return w, w.tally(s.number)
		}
	}
	return nil, nil
}

// counted takes in the reply to s, and reports whether the number fell.
func (t *track) counted(s send, number uint64) (fell bool) {
	w, tally := t.find(s.slot)
	if tally == nil {
		return false
	}
	others, fell := tally.counted(s.limit.Layout, number, s.delta)
	w.others = w.others || others && s.number == w.number
	return fell
}

// unsent takes s back: it is to be sent again.
func (t *track) unsent(s send) {
	switch w, tally := t.find(s.slot); {
	case tally != nil:
		w.full += tally.unsent(s.limit.Layout, s.delta)
	case w != nil:
		w.late += s.limit.Layout.Sum(s.delta)
	default:
		t.windows[0].late += s.limit.Layout.Sum(s.delta)
	}
}

// unknown takes in that nobody knows whether s was counted.
func (t *track) unknown(s send) {
	if _, tally := t.find(s.slot); tally != nil {
		tally.unknown(s.limit.Layout, s.delta)
	}
}

// read takes in a counter, as it was at now, and reports whether its number fell. If other
// nodes may still add to it, until catchUp after its window, it is read once more.
func (t *track) read(s slot, value uint64, now time.Time, catchUp time.Duration) (again time.Time, fell bool) {
	w, tally := t.find(s)
	if tally == nil || s.number == w.number && !w.outdated() {
		return time.Time{}, false
	}
	fell = tally.read(w.limit.Layout, value)
	switch {
	case s.number == w.number:
		return time.Time{}, fell
	case w.outdated():
		w.due, w.fresh = false, now.Before(w.settled)
		return time.Time{}, fell
	}
	w.fresh, w.again = false, 0
	last := min(catchUp.Microseconds(), w.limit.Period-1)
	if elapsed := w.at(now); elapsed < last {
		w.again = last
		again = now.Add(time.Duration(last-elapsed) * time.Microsecond)
	}
	return again, fell
}

// A finding is what the counts of a key say.
type finding struct {
	over bool
	near bool           // a few more requests will exceed a threshold
	back time.Time      // if over: when every limit is back at its threshold
	why  mitigation.Why // if over: the limit that is back last
}

// evaluate holds the estimate of each limit against its threshold at now. Requests that
// are counted later than they came weigh less by then, never more.
//
// If other nodes counted, one of them may have seen the estimate over at a moment between
// the last evaluation and this one, when the previous window weighed more; then the
// record is to be read.
func (t *track) evaluate(now time.Time) (f finding) {
	t.advance(now)
	for i := range t.windows {
		w := &t.windows[i]
		if w.outdated() {
			continue
		}
		elapsed := w.at(now)
		for v := range t.views(w) {
			if v.over(elapsed) {
				if back := v.back(elapsed, now); !f.over || back.After(f.back) {
					f.back = back
					f.why = mitigation.Why{Limit: v.limit, Prev: v.prev, Cur: v.cur, Elapsed: elapsed}
				}
				f.over = true
			} else if w.others && w.seen >= 0 && v.over(min(w.seen, elapsed)) {
				t.readRecord = true
			}
			f.near = f.near || v.remaining(elapsed) <= w.limit.Threshold/nearFraction
		}
		w.seen, w.others = elapsed, false
	}
	return f
}

// nearFraction: a key is near its threshold when an eighth of it is left, or less. Its
// requests are counted at once.
const nearFraction = 8
