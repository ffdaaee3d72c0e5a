package count

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A track holds a node's counts of one key. It does no I/O: take and wants return what to send
// and to read, counted and read record the answers. The loop owns it, except fields marked shared.
type track struct {
	key counter.Key

	// generation is how often the key's mitigation was lifted. Each generation has items of
	// its own (see counter.Secret.After), so that counts from before a lift never come back.
	generation uint32

	rule    *rule.Rule
	windows []window // one for each of the rule's limits, then those of outdated layouts
	sample  mitigation.Sample
	lost    *losses

	readRecord atomic.Bool // shared: another node may have mitigated the key
	store      bool        // the record must be stored in the shard
	conflict   bool        // the shard has another record, which must be read first
	version    uint64      // of the record in the shard, 0 if it has none

	burst     uint64 // requests of the last flush
	near      bool   // a few more requests will exceed a threshold
	flying    bool   // in a batch of its shard
	redo      bool   // send it again when the batch is answered
	forgotten bool   // evicted
	since     int64  // when the oldest unsent request came, in microseconds; 0: none
	flown     int64  // when the oldest request in flight came

	in         *list // where it waits for a batch; nil if it does not
	next, prev *track

	owner   *lane     // of the shard that owns the key; nil if not known
	change  uint64    // of the placement that owner is from
	formers []former  // former owners that still matter
	settles time.Time // when all formers have settled and the owner must be read again; zero: never

	mu      sync.Mutex
	shown   []view // shared, guarded by mu: the counts at the last evaluation
	shownOf uint32 // shared, guarded by mu: their generation
}

// A window is the current window of one limit, and the previous one.
type window struct {
	counter.Windows[int64, tally]
	limit  counter.Limit
	fresh  bool  // the previous counter was not read yet
	again  int64 // elapsed at which to read it again; 0: it is final
	seen   int64 // elapsed when the window was last evaluated; -1: not yet
	others bool  // other nodes have counted since then

	// until is when an outdated layout ceases to matter; from settled on no node counts in
	// it. Both are zero if the layout is the rule's.
	until, settled time.Time
	final          bool // the counters of the outdated layout were read after settled
}

// outdated reports whether the layout is no longer the rule's.
func (w *window) outdated() bool { return !w.until.IsZero() }

// setRule makes r the rule of t; it may be another version of the same rule. Limits that
// keep their period and layout keep their counts; outdated layouts are still read.
func (t *track) setRule(r *rule.Rule, now time.Time, outdated []outdated) {
	if t.rule == r {
		return
	}
	windows := make([]window, 0, len(r.Limits)+len(outdated))
	for _, l := range r.Limits {
		w := t.window(l.Counted(), now)
		w.fresh = w.fresh || w.outdated() // other nodes may have returned to it earlier
		w.until = time.Time{}
		windows = append(windows, w)
	}
	before := t.windows
	for _, o := range outdated {
		limit, _ := countedAs(r, o.limit)
		o.limit.Threshold = limit.Threshold
		w := t.window(o.limit, now)
		w.until, w.settled, w.final = o.until, o.settled, false
		windows = append(windows, w)
	}
	t.change = 0 // other limits may need other counters of former owners
	t.rule, t.windows = r, windows
	for i := range before {
		if w, _ := t.find(t.slot(before[i].limit, 0)); w == nil {
			t.lose(dropShard, &before[i])
		}
	}
}

// lose drops the pending requests of w.
func (t *track) lose(cause int, w *window) {
	t.lost[cause] += w.limit.Layout.Sum(w.Prev.pending) + w.limit.Layout.Sum(w.Cur.pending)
	w.Prev.pending, w.Cur.pending = 0, 0
}

// loseAll drops all pending requests.
func (t *track) loseAll(cause int) {
	for i := range t.windows {
		t.lose(cause, &t.windows[i])
	}
	t.since = 0
}

// window returns the windows of limit: those that t has, with their counts, or new ones.
func (t *track) window(limit counter.Limit, now time.Time) window {
	w := window{fresh: true, seen: -1}
	w.Index, _ = counter.Window(now, limit.Period)
	for i := range t.windows {
		if sameCounters(t.windows[i].limit, limit) {
			w = t.windows[i]
		}
	}
	w.limit = limit
	return w
}

// lift resets the counts after a lift. Requests that are pending or in flight are dropped.
func (t *track) lift(generation uint32) {
	for i := range t.windows {
		w := &t.windows[i]
		for _, each := range []*tally{&w.Prev, &w.Cur} {
			t.lost[dropLifted] += w.limit.Layout.Sum(each.pending) + w.limit.Layout.Sum(each.flying)
			*each = tally{}
		}
		w.fresh, w.again, w.seen, w.others, w.final = true, 0, -1, false, false
	}
	t.generation, t.near, t.since = generation, false, 0
	t.change, t.formers = 0, nil // former owners may have counters of this generation
}

// add counts n requests that arrived at arrived: now, or a little earlier.
func (t *track) add(n uint64, arrived time.Time) {
	for i := range t.windows {
		w := &t.windows[i]
		index, elapsed := counter.Window(arrived, w.limit.Period)
		t.roll(w, index)
		if w.outdated() {
			continue
		}
		if tally := w.At(index); tally != nil {
			fits := min(n, w.limit.Layout.Stop())
			t.lost[dropFull] += n - fits + tally.add(w.limit.Layout, w.limit.Delta(fits, elapsed))
		} else {
			t.lost[dropShard] += n
		}
	}
}

// roll makes the window at index the current one.
func (t *track) roll(w *window, index int64) {
	switch {
	case index <= w.Index:
		return
	case index == w.Index+1:
		t.lost[dropShard] += w.limit.Layout.Sum(w.Prev.pending)
	default:
		t.lose(dropShard, w)
	}
	w.Roll(index)
	w.fresh, w.again, w.seen, w.others = true, 0, -1, false
}

// advance makes the window at now the current one of each limit. If the clock was set back by a
// window or more, the counts are reset: they were made at a wrong time.
func (t *track) advance(now time.Time) {
	for i := range t.windows {
		w := &t.windows[i]
		index, _ := counter.Window(now, w.limit.Period)
		if index < w.Index-1 {
			w.Index = index - 2 // so that both windows have passed
		}
		t.roll(w, index)
	}
	t.dropOutdated(now)
}

// at returns the elapsed time of the current window at now, 0 if the clock was set back.
func (w *window) at(now time.Time) int64 {
	index, elapsed := counter.Window(now, w.limit.Period)
	if index < w.Index {
		return 0
	}
	return elapsed
}

// A slot is a window of a limit, which has one counter in each generation.
type slot struct {
	limit      counter.Limit
	index      int64
	generation uint32
}

// slot returns a window of a limit in t's generation.
func (t *track) slot(limit counter.Limit, index int64) slot { return slot{limit, index, t.generation} }

// A send is an increment of one counter.
type send struct {
	slot
	delta uint64
	made  bool // the counter is known to exist
}

// take appends the increments to send to dst. senders is how many senders share the counters.
// Each increment must be answered by counted, takeBack or unknown.
func (t *track) take(dst []send, senders int) []send {
	for i := range t.windows {
		w := &t.windows[i]
		l := w.limit.Layout
		budget := l.Budget(senders)
		for index := w.Index - 1; index <= w.Index; index++ {
			tally := w.At(index)
			switch {
			case tally.pending == 0:
			case budget == 0: // see CheckNodes
				t.lost[dropNodes] += tally.keep(l)
			case tally.alone:
				t.lost[dropRefused] += tally.keep(l)
			default:
				delta, full := tally.send(l, budget)
				if t.lost[dropFull] += full; delta > 0 {
					dst = append(dst, send{t.slot(w.limit, index), delta, tally.made})
				}
			}
		}
	}
	t.flown, t.since = t.since, 0
	if t.unsent() {
		t.since = t.flown
	}
	return dst
}

// address returns the address of the shard that owns the key, "" if not known.
func (t *track) address() string {
	if t.owner == nil {
		return ""
	}
	return t.owner.addr()
}

// unsent reports whether requests are pending.
func (t *track) unsent() bool {
	for i := range t.windows {
		if w := &t.windows[i]; w.Prev.pending|w.Cur.pending != 0 {
			return true
		}
	}
	return false
}

// wants appends the counters to read from the owner at now to dst. settled means that all former
// owners have settled: all nodes now count at this owner.
func (t *track) wants(dst []slot, now time.Time, settled bool) []slot {
	for i := range t.windows {
		w := &t.windows[i]
		if w.outdated() {
			if settled || !w.final {
				dst = append(dst, t.slot(w.limit, w.Index-1), t.slot(w.limit, w.Index))
			}
			continue
		}
		first := w.fresh && w.Cur.known(w.limit.Layout) > 0
		if first || settled || w.again > 0 && w.at(now) >= w.again {
			dst = append(dst, t.slot(w.limit, w.Index-1))
		}
		if first {
			t.readRecord.Store(true)
		}
	}
	return dst
}

// find returns the window and the tally of s, nil if its window has passed, its limit is gone, or
// its generation was lifted.
func (t *track) find(s slot) (*window, *tally) {
	if s.generation != t.generation {
		return nil, nil
	}
	for i := range t.windows {
		if w := &t.windows[i]; sameCounters(w.limit, s.limit) {
			return w, w.At(s.index)
		}
	}
	return nil, nil
}

// counted records the owner's reply to s, which came over from. It reports whether the value
// fell.
func (t *track) counted(s *send, from *counter.Link, value uint64) (fell bool) {
	w, tally := t.find(s.slot)
	if tally == nil {
		return false
	}
	others, fell := tally.counted(s.limit.Layout, t.address(), from, value, s.delta)
	w.others = w.others || others && s.index == w.Index
	return fell
}

// takeBack makes s pending again, since it was not made. If the shard refused it, or was missing
// the counter twice in a row, this node counts alone for the rest of the window.
func (t *track) takeBack(s *send, outcome counter.Outcome) {
	if s.generation != t.generation {
		return // lift dropped it
	}
	_, tally := t.find(s.slot)
	if tally == nil {
		t.lost[dropShard] += s.limit.Layout.Sum(s.delta)
		return
	}
	t.lost[dropFull] += tally.unsent(s.limit.Layout, s.delta)
	if outcome == counter.Absent {
		tally.made = false
		tally.misses++
	}
	tally.alone = tally.alone || outcome == counter.Refused || tally.misses > 1
	t.since = t.flown
}

// unknown records that s was sent without an answer.
func (t *track) unknown(s *send, from *counter.Link) {
	if _, tally := t.find(s.slot); tally != nil {
		tally.unknown(s.limit.Layout, t.address(), from, s.delta)
	}
}

// read records a counter of the owner, read at now, and reports whether its value fell. Other
// nodes may add to it until catchUp after its window: before that, again is when to read it again.
func (t *track) read(s slot, from *counter.Link, value uint64, now time.Time, catchUp time.Duration) (again time.Time, fell bool) {
	w, tally := t.find(s)
	if tally == nil || s.index == w.Index && !w.outdated() {
		return time.Time{}, false
	}
	fell = tally.readOwner(w.limit.Layout, t.address(), from, value)
	if w.outdated() {
		w.final = !now.Before(w.settled)
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
