package count

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A track holds a node's counts of one key. The loop owns it, except fields marked shared.
type track struct {
	key counter.Key

	// generation is how often the key's mitigation was lifted. Each generation has items of
	// its own (see counter.Secret.After), so that counts from before a lift never come back.
	generation uint32

	rule    *rule.Rule
	windows []window // one for each of the rule's limits, then those of outdated layouts
	lost    *losses

	// The client and the text of the sample: method, host and path. cuts are where host and path begin.
	client netip.Addr
	text   string
	cuts   [2]uint16

	readRecord atomic.Bool // shared: another node may have mitigated the key
	store      bool        // the record must be stored in the shard
	version    uint64      // of the record in the shard, 0 if it has none

	seen *[2]ClientSet // in the first limit's window, and in the one before; nil unless its rule has MinClients
	held bool          // in Loop.later until its counts are sent

	burst     uint64 // requests of the last flush
	near      bool   // a few more requests will exceed a threshold
	listed    bool   // in Loop.nearest
	flying    bool   // in a batch of its shard
	forgotten bool   // evicted
	since     int64  // when the oldest unsent request came, in microseconds; 0: none
	flown     int64  // when the oldest request in flight came
	told      int64  // when the requests came by whose answer the counts of other nodes are known

	in         *list // where it waits for a batch; nil if it does not
	next, prev *track

	placed  *placement // that owner and formers are from; nil: they must be found
	owner   *lane      // of the shard that owns the key; nil if not known
	formers []former   // where counters are that nobody increments any more

	mu      sync.Mutex
	shown   []view // shared, guarded by mu: the counts at the last evaluation
	shownOf uint32 // shared, guarded by mu: their generation

	// The windows and the counts of a key with one limit are in the same allocation.
	firstWindow [1]window
	firstShown  [1]view
}

// A window is the current window of one limit, and the previous one.
type window struct {
	counter.Windows[int64, tally]
	limit  counter.Limit
	old    *outdated // nil if the layout is the rule's
	again  int64     // when to read the previous counter again, in nanoseconds since the Unix epoch; 0: it is final
	now    int64     // elapsed when t last advanced, 0 if the clock was set back
	seen   int64     // the same when the window was last evaluated; -1: not yet
	others bool      // other nodes have counted since then
	fresh  bool      // the previous counter was not read yet
}

// outdated reports whether the layout is no longer the rule's.
func (w *window) outdated() bool { return w.old != nil }

// setRule makes r the rule of t; it may be another version of the same rule. Limits that
// keep their period and layout keep their counts; outdated layouts are still read.
func (t *track) setRule(r *rule.Rule, now time.Time, outdated []outdated) {
	if t.rule == r {
		return
	}
	windows := t.firstWindow[:0]
	if n := len(r.Limits) + len(outdated); n > 1 || t.windows != nil {
		windows = make([]window, 0, n)
	}
	for _, l := range r.Limits {
		w := t.window(l.Counted(), now)
		w.fresh = w.fresh || w.outdated() // other nodes may have returned to it earlier
		w.old = nil
		windows = append(windows, w)
	}
	before := t.windows
	for i := range outdated {
		limit := outdated[i].limit
		current, _ := countedAs(r, limit)
		limit.Threshold = current.Threshold
		w := t.window(limit, now)
		w.old = &outdated[i]
		windows = append(windows, w)
	}
	t.placed = nil // other limits may need other counters of formers
	t.rule, t.windows = r, windows
	for i := range before {
		if w, _ := t.find(t.slot(before[i].limit, 0)); w == nil {
			t.lose(dropShard, &before[i])
		}
	}
}

// keep replaces the sample by s, copied unless it says the same again.
func (t *track) keep(s *mitigation.Sample) {
	if had := t.sample(); had.Method != cut(s.Method) || had.Host != cut(s.Host) || had.Path != cut(s.Path) {
		method, host := cut(s.Method), cut(s.Host)
		t.text, t.cuts = method+host+cut(s.Path), [2]uint16{uint16(len(method)), uint16(len(method) + len(host))}
	}
	t.client = s.Client
}

// sample returns the last request that was counted.
func (t *track) sample() mitigation.Sample {
	host, path := t.cuts[0], t.cuts[1]
	return mitigation.Sample{Client: t.client, Method: t.text[:host], Host: t.text[host:path], Path: t.text[path:]}
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
		w.fresh, w.again, w.seen, w.others = true, 0, -1, false
	}
	t.generation, t.near, t.since = generation, false, 0
	t.placed, t.formers = nil, nil // they may have counters of this generation
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
	if w == &t.windows[0] && t.seen != nil {
		if t.seen[1] = t.seen[0]; index > w.Index+1 {
			t.seen[1] = ClientSet{}
		}
		t.seen[0] = ClientSet{}
	}
	w.Roll(index)
	w.fresh, w.again, w.seen, w.others = true, 0, -1, false
}

// advance makes the window at now the current one of each limit. If the clock was set back by a
// window or more, the counts are reset: they were made at a wrong time.
func (t *track) advance(now time.Time) {
	at := now.UnixMicro()
	for i := range t.windows {
		w := &t.windows[i]
		index, elapsed := counter.WindowAt(at, w.limit.Period)
		if index < w.Index-1 {
			w.Index = index - 2 // so that both windows have passed
		}
		t.roll(w, index)
		if w.now = elapsed; index < w.Index {
			w.now = 0
		}
	}
	t.dropOutdated(now)
}

// slot returns a window of a limit in t's generation.
func (t *track) slot(limit counter.Limit, index int64) slot {
	return slot{t, t.generation, limit, index}
}

// send yields the increments to send; made is whether the counter is known to exist. senders is
// how many senders share the counters. The outcome of each increment must be passed to counted.
func (t *track) send(senders int, yield func(s slot, delta uint64, made bool)) {
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
					yield(t.slot(w.limit, index), delta, tally.made)
				}
			}
		}
	}
	t.flown, t.since = t.since, 0
	if t.unsent() {
		t.since = t.flown
	}
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

// due reports whether the previous counter is to be read from the owner at now.
func (w *window) due(now time.Time) bool {
	return !w.outdated() && (w.fresh && w.Cur.known(w.limit.Layout) > 0 || w.again != 0 && now.UnixNano() >= w.again)
}

// hasWork reports whether t has something to send or to read at now.
func (t *track) hasWork(now time.Time) bool {
	if t.store || t.readRecord.Load() || t.unsent() {
		return true
	}
	for i := range t.windows {
		if t.windows[i].due(now) {
			return true
		}
	}
	return false
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

// counted records the outcome of an increment of s, which was sent over from. It reports whether
// the value of the counter fell.
func (t *track) counted(s slot, op *memcached.Increment, from *memcached.Link) (fell bool) {
	w, tally := t.find(s)
	l := s.limit.Layout
	switch sent := op.Outcome == memcached.Done || op.Outcome == memcached.Unknown; {
	case tally == nil:
		if !sent && s.generation == t.generation { // else lift dropped it
			t.lost[dropShard] += l.Sum(op.Delta)
		}
	case op.Outcome == memcached.Done:
		others, fell := tally.counted(l, t.address(), from, op.Value, op.Delta)
		w.others = w.others || others && s.index == w.Index
		t.told = t.flown
		return fell
	case sent:
		tally.unknown(l, t.address(), from, op.Delta)
	default:
		t.lost[dropFull] += tally.unsent(l, op.Delta, op.Outcome)
		t.since = t.flown
	}
	return false
}

// hasReadPrev records that the previous counter of w was read from the owner, at now. Other nodes
// may add to it until catchUp after its window, and until all have made a change. Then it is read
// again.
func (t *track) hasReadPrev(w *window, now time.Time, catchUp time.Duration) {
	var again time.Time
	late := min(catchUp, time.Duration(w.limit.Period-1)*time.Microsecond)
	if final := time.UnixMicro(w.Index * w.limit.Period).Add(late); now.Before(final) {
		again = final
	}
	for i := range t.formers {
		if settled := t.formers[i].settled; now.Before(settled) {
			again = sooner(again, settled)
		}
	}
	if w.fresh, w.again = false, 0; !again.IsZero() {
		w.again = again.UnixNano()
	}
}
