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
	windows    []window // one for each of the rule's limits
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
}

// newTrack returns the track of key, counted by r, at now.
func newTrack(key counter.Key, r *rule.Rule, now time.Time) *track {
	t := &track{key: key}
	t.setRule(r, now)
	return t
}

// setRule lets t be counted by r, which may be another version of its rule. Limits that
// keep their period keep their counts.
func (t *track) setRule(r *rule.Rule, now time.Time) {
	if t.rule == r {
		return
	}
	windows := make([]window, len(r.Limits))
	for i, l := range r.Limits {
		limit := newLimit(l)
		number, _ := counter.Window(now, limit.Period)
		windows[i] = window{number: number, fresh: true, seen: -1}
		for _, old := range t.windows {
			if old.limit.Period == limit.Period && old.limit.Layout == limit.Layout {
				windows[i] = old
			}
		}
		windows[i].limit = limit
	}
	// Other limits may need other counters of former owners.
	t.change, t.formers = 0, nil
	t.rule, t.windows = r, windows
}

// newLimit returns how a limit of a rule is counted.
func newLimit(l rule.Limit) counter.Limit {
	return counter.Limit{Threshold: l.Threshold, Period: l.Period.Microseconds(), Layout: counter.Plain}
}

// forget forgets what was counted: the mitigation that came of it was lifted.
func (t *track) forget() {
	for i := range t.windows {
		w := &t.windows[i]
		w.prev, w.cur = tally{}, tally{}
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
		if tally := w.tally(number); tally != nil {
			tally.pending += w.limit.Delta(n, elapsed)
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
		w.late += w.limit.Layout.Sum(w.prev.pending) + w.limit.Layout.Sum(w.cur.pending)
		w.prev, w.cur = tally{}, tally{}
	}
	w.number, w.fresh, w.again, w.seen, w.others = number, true, 0, -1, false
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

// unsentRequests returns how many requests, for each limit, are not sent.
func (t *track) unsentRequests() (n uint64) {
	for _, w := range t.windows {
		n += w.limit.Layout.Sum(w.prev.pending) + w.limit.Layout.Sum(w.cur.pending)
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
	reads   []slot   // windows whose previous counter is read
	record  bool     // whether the record is read
	store   bool     // whether the record is stored
	formers []former // former owners that are read
}

// next takes the work that there is at now into j, which it returns, and reports whether
// there is any. What is taken must be given back by counted, unsent or unknown.
func (t *track) next(now time.Time, j job) (_ job, any bool) {
	j = job{sends: j.sends[:0], reads: j.reads[:0], formers: j.formers[:0]}
	var settled bool
	j.formers, settled = t.dueFormers(j.formers, now)
	t.advance(now)
	for i := range t.windows {
		w := &t.windows[i]
		for _, number := range []int64{w.number - 1, w.number} {
			if tally := w.tally(number); tally.pending > 0 {
				j.sends = append(j.sends, send{slot{w.limit, number}, tally.send()})
			}
		}
		first := w.fresh && w.cur.known() > 0
		if first || settled || w.again > 0 && w.at(now) >= w.again {
			j.reads = append(j.reads, slot{w.limit, w.number})
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
		if w := &t.windows[i]; w.limit.Period == s.limit.Period && w.limit.Layout == s.limit.Layout {
			return w, w.tally(s.number)
		}
	}
	return nil, nil
}

// counted takes in the reply to s.
func (t *track) counted(s send, number uint64) {
	if w, tally := t.find(s.slot); tally != nil && tally.counted(number, s.delta) && s.number == w.number {
		w.others = true
	}
}

// unsent takes s back: it is to be sent again.
func (t *track) unsent(s send) {
	switch w, tally := t.find(s.slot); {
	case tally != nil:
		tally.unsent(s.delta)
	case w != nil:
		w.late += w.limit.Layout.Sum(s.delta)
	}
}

// unknown takes in that nobody knows whether s was counted.
func (t *track) unknown(s send) {
	if _, tally := t.find(s.slot); tally != nil {
		tally.unknown(s.delta)
	}
}

// read takes in the previous counter of a window, as it was at now. If other nodes may
// still add to it, until catchUp after the window's beginning, it is read once more.
func (t *track) read(s slot, value uint64, now time.Time, catchUp time.Duration) (again time.Time) {
	w, tally := t.find(slot{s.limit, s.number - 1})
	if tally == nil || w.number != s.number {
		return time.Time{}
	}
	tally.read(value)
	w.fresh, w.again = false, 0
	last := min(catchUp.Microseconds(), w.limit.Period-1)
	if elapsed := w.at(now); elapsed < last {
		w.again = last
		return now.Add(time.Duration(last-elapsed) * time.Microsecond)
	}
	return time.Time{}
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
		prev, cur, elapsed := w.prev.known(), w.cur.known(), w.at(now)
		if w.limit.Over(prev, cur, elapsed) {
			back := now.Add(time.Duration(w.limit.Back(prev, cur, elapsed)-elapsed) * time.Microsecond)
			if !f.over || back.After(f.back) {
				f.back = back
				f.why = mitigation.Why{Limit: w.limit, Prev: prev, Cur: cur, Elapsed: elapsed}
			}
			f.over = true
		} else if w.others && w.seen >= 0 && w.limit.Over(prev, cur, min(w.seen, elapsed)) {
			t.readRecord = true
		}
		f.near = f.near || w.limit.Remaining(prev, cur, elapsed) <= w.limit.Threshold/nearFraction
		w.seen, w.others = elapsed, false
	}
	return f
}

// nearFraction: a key is near its threshold when an eighth of it is left, or less. Its
// requests are counted at once.
const nearFraction = 8
