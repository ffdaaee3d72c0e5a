package async

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
)

// A track holds a node's counts of one key. The loop owns it. Requests may read fields marked shared
// under the lock of the track's part.
//
// There may be a million tracks, so a test pins their size. State that few keys need is in rarely.
type track struct {
	key        counter.Key
	chain      *track // shared: the next one in the same bucket of the part
	next, prev *track // in a list of its lane

	plan   *plan  // shared: how the key is counted; nil if only its record matters
	owner  *lane  // of the shard that owns the key; nil if not known
	placed uint32 // epoch of the placement that owner and formers are from; 0 if they must be found

	// generation is how often the key's mitigation was lifted. Each generation has items of
	// its own (see counter.Secret.After), so that counts from before a lift never come back. Shared.
	generation uint32

	rarely atomic.Pointer[rarely] // nil for most tracks

	// The client and the text of the sample: method, host and path. cuts are where host and path begin.
	client [16]byte
	text   string
	cuts   [2]uint8

	burst      uint32        // requests of the last flush
	since      int64         // when the oldest unsent request arrived, in microseconds; 0 if none
	knownAt    atomic.Uint32 // shared: see stale
	readRecord atomic.Bool   // shared: another node may have mitigated the key
	store      bool          // the record must be stored in the shard
	held       bool          // in Loop.later until its counts are sent
	near       bool          // a few more requests will exceed a threshold
	flying     bool          // in a batch of its shard
	forgotten  bool          // evicted
	used       bool          // since eviction last passed over it
	news       bool          // a shard has answered with a count since the last evaluation
	waits      queue         // where it waits for a batch

	first [1]window // of the only limit of most keys
}

// rarely is the part of a track that few keys need.
type rarely struct {
	windows []window     // shared: of several limits; nil if there is one
	formers []former     // shards with counters that are no longer incremented
	version uint64       // of the record in the shard; 0 if it has none
	tries   uint8        // how often the shard had another record when this one was stored
	clients [2]ClientSet // in the first limit's current and previous window, if the rule has MinClients
}

// A window is the current window of one limit, and the previous one.
type window struct {
	counter.Windows[uint32, tally]
	shown      [2]uint64 // shared: known values of prev and cur at the last evaluation
	shownIndex uint32    // shared: the index then
	shownFresh bool      // shared: fresh then

	fresh  bool   // the previous counter was not read yet
	others bool   // other nodes have counted since the last evaluation
	seen   uint32 // elapsed at the last evaluation, in milliseconds; unseen if there was none
	again  uint32 // when to read the previous counter again, in milliseconds since the window began; 0 if it is final
}

const unseen = math.MaxUint32

// newWindow returns the windows of a limit about which nothing is known.
func newWindow(limit *planned, now time.Time) (w window) {
	index, _ := counter.Window(now, limit.Period)
	w.Index, w.fresh, w.seen = uint32(index), true, unseen
	return w
}

// forget resets what was known before the last roll.
func (w *window) forget() { w.fresh, w.again, w.seen, w.others = true, 0, unseen, false }

// elapsed returns how much of the current window has passed at now, or 0 if the clock was set back.
func (w *window) elapsed(limit *planned, now time.Time) int64 {
	index, elapsed := counter.Window(now, limit.Period)
	if uint32(index) < w.Index {
		return 0
	}
	return elapsed
}

// rare returns t.rarely, creating it if missing.
func (t *track) rare() *rarely {
	if t.rarely.Load() == nil {
		t.rarely.Store(new(rarely))
	}
	return t.rarely.Load()
}

// formers returns the shards with counters that still count but are no longer incremented.
func (t *track) formers() []former {
	if r := t.rarely.Load(); r != nil {
		return r.formers
	}
	return nil
}

// windows returns a window for each limit of the plan.
func (t *track) windows() []window {
	if r := t.rarely.Load(); r != nil && r.windows != nil {
		return r.windows
	}
	if t.plan == nil {
		return nil
	}
	return t.first[:]
}

// setPlan replaces the plan of t. Limits that keep their period and layout keep their counts.
func (t *track) setPlan(p *plan, now time.Time) {
	before, windows := t.plan, t.windows()
	of := func(i int) window {
		limit := &p.limits[i]
		if j := before.find(limit); j >= 0 {
			w := windows[j]
			w.fresh = w.fresh || before.limits[j].outdated() && !limit.outdated() // other nodes may have returned to it earlier
			return w
		}
		return newWindow(limit, now)
	}
	for j := range windows {
		if p.find(&before.limits[j]) < 0 {
			t.lose(dropShard, j)
		}
	}
	if len(p.limits) > 1 {
		several := make([]window, len(p.limits))
		for i := range several {
			several[i] = of(i)
		}
		t.rare().windows = several
	} else {
		t.first[0] = of(0)
		if r := t.rarely.Load(); r != nil {
			r.windows = nil
		}
	}
	t.plan = p
	t.placed = 0 // other limits may need other counters of formers
}

// keep replaces the sample with a copy of s, unless they are equal.
func (t *track) keep(s *mitigation.Sample) {
	had, last := t.sample(), cut(*s)
	if had.Method != last.Method || had.Host != last.Host || had.Path != last.Path {
		t.text, t.cuts = last.Method+last.Host+last.Path, [2]uint8{uint8(len(last.Method)), uint8(len(last.Method) + len(last.Host))}
	}
	t.client = s.Client.As16()
}

// sample returns the last request that was counted.
func (t *track) sample() mitigation.Sample {
	host, path := t.cuts[0], t.cuts[1]
	return mitigation.Sample{Client: t.lastClient(), Method: t.text[:host], Host: t.text[host:path], Path: t.text[path:]}
}

// lastClient returns the client of the last request that was counted.
func (t *track) lastClient() netip.Addr {
	if t.client == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(t.client).Unmap()
}

// lose drops the pending requests of the ith window.
func (t *track) lose(cause, i int) {
	w, l := &t.windows()[i], t.plan.limits[i].Layout
	t.plan.lost[cause] += l.Sum(w.Prev.pending) + l.Sum(w.Cur.pending)
	w.Prev.pending, w.Cur.pending = 0, 0
}

// loseAll drops all pending requests.
func (t *track) loseAll(cause int) {
	for i := range t.windows() {
		t.lose(cause, i)
	}
	t.since = 0
}

// lift resets the counts after a lift. Requests that are pending or in flight are dropped.
func (t *track) lift(generation uint32) {
	windows := t.windows()
	for i := range windows {
		w, l := &windows[i], t.plan.limits[i].Layout
		for _, each := range []*tally{&w.Prev, &w.Cur} {
			t.plan.lost[dropLifted] += l.Sum(each.pending) + l.Sum(each.flying)
			*each = tally{}
		}
		w.shown = [2]uint64{}
		w.forget()
	}
	t.generation, t.near, t.since = generation, false, 0
	t.unplace() // formers may have counters of this generation
}

// unplace causes the loop to find the owner and the formers again.
func (t *track) unplace() {
	if t.placed = 0; t.formers() != nil {
		t.rare().formers = nil
	}
}

// add counts n requests that arrived at arrived: now, or a little earlier.
func (t *track) add(n uint64, arrived time.Time) {
	windows := t.windows()
	for i := range windows {
		w, limit := &windows[i], &t.plan.limits[i]
		at, elapsed := counter.Window(arrived, limit.Period)
		index := uint32(at)
		if index > w.Index {
			t.roll(i, index)
		}
		if limit.outdated() {
			continue
		}
		if tally := w.At(index); tally != nil {
			fits := min(n, limit.Layout.Stop())
			t.plan.lost[dropFull] += n - fits + tally.add(limit.Layout, limit.Delta(fits, elapsed))
		} else {
			t.plan.lost[dropShard] += n
		}
	}
}

// roll makes the window at index the current one. Counts are kept only if it is the next one.
func (t *track) roll(i int, index uint32) {
	w, clients := &t.windows()[i], ClientSet{}
	if index == w.Index+1 {
		t.plan.lost[dropShard] += t.plan.limits[i].Layout.Sum(w.Prev.pending)
		clients = t.seen()[0]
		w.Roll(index)
	} else {
		t.lose(dropShard, i)
		w.Windows = counter.Windows[uint32, tally]{Index: index}
	}
	if r := t.rarely.Load(); i == 0 && r != nil {
		r.clients = [2]ClientSet{1: clients}
	}
	w.forget()
}

// advance makes the window at now the current one of each limit. If the clock was set back by a
// window or more, the counts are reset: they were made at a wrong time.
func (t *track) advance(now time.Time) {
	windows := t.windows()
	for i := range windows {
		index, _ := counter.Window(now, t.plan.limits[i].Period)
		if at, current := uint32(index), windows[i].Index; at > current || at+1 < current {
			t.roll(i, at)
		}
	}
}

// slot returns a window of the ith limit in t's generation.
func (t *track) slot(i int, index uint32) slot {
	return slot{track: t, generation: t.generation, limit: &t.plan.limits[i], index: index}
}

// send yields the increments to send; made is whether the counter is known to exist. senders is
// how many senders share the counters. The outcome of each increment must be passed to counted.
func (t *track) send(senders int, yield func(s slot, delta uint64, made bool)) {
	since := t.since
	windows := t.windows()
	for i := range windows {
		w, l := &windows[i], t.plan.limits[i].Layout
		budget := l.Budget(senders)
		for index := w.Index - 1; index != w.Index+1; index++ {
			tally := w.At(index)
			switch {
			case tally.pending == 0:
			case budget == 0: // see CheckNodes
				t.plan.lost[dropNodes] += tally.keep(l)
			case tally.alone():
				t.plan.lost[dropRefused] += tally.keep(l)
			default:
				delta, full := tally.send(l, budget)
				if t.plan.lost[dropFull] += full; delta > 0 {
					s := t.slot(i, index)
					s.since = since
					yield(s, delta, tally.made())
				}
			}
		}
	}
	if !t.unsent() {
		t.since = 0
	}
}

// address returns the address of the shard that owns the key, or "" if not known.
func (t *track) address() string {
	if t.owner == nil {
		return ""
	}
	return t.owner.addr()
}

// unsent reports whether requests are pending.
func (t *track) unsent() bool {
	windows := t.windows()
	for i := range windows {
		if w := &windows[i]; w.Prev.pending|w.Cur.pending != 0 {
			return true
		}
	}
	return false
}

// due reports whether the previous counter of the ith window must be read from the owner at now.
func (t *track) due(i int, now time.Time) bool {
	w, limit := &t.windows()[i], &t.plan.limits[i]
	return !limit.outdated() && (w.fresh && w.Cur.known(limit.Layout) > 0 || w.again != 0 && !now.Before(w.readAgain(limit)))
}

// readAgain returns when to read the previous counter again.
func (w *window) readAgain(limit *planned) time.Time {
	return time.UnixMicro(int64(w.Index)*limit.Period + int64(w.again)*1000)
}

// hasWork reports whether t has something to send or to read at now.
func (t *track) hasWork(now time.Time) bool {
	if t.store || t.readRecord.Load() || t.unsent() {
		return true
	}
	for i := range t.windows() {
		if t.due(i, now) {
			return true
		}
	}
	return false
}

// find returns the window and the tally of s, or nil if its window has passed, its limit is gone, or
// its generation was lifted.
func (t *track) find(s slot) (*window, *tally) {
	if s.generation != t.generation {
		return nil, nil
	}
	i := t.plan.find(s.limit)
	if i < 0 {
		return nil, nil
	}
	w := &t.windows()[i]
	return w, w.At(s.index)
}

// counted records the outcome of an increment of s, which was sent over from. It reports whether
// the value of the counter fell.
func (t *track) counted(s slot, op *counter.Increment, from *memcached.Link) (fell bool) {
	w, tally := t.find(s)
	t.news = true
	l := s.limit.Layout
	switch sent := op.Outcome == counter.Done || op.Outcome == counter.Unknown; {
	case tally == nil:
		if !sent && s.generation == t.generation { // else lift dropped it
			t.plan.lost[dropShard] += l.Sum(op.Delta)
		}
	case op.Outcome == counter.Done:
		others, fell := tally.counted(l, t.address(), from, op.Value, op.Delta)
		w.others = w.others || others && s.index == w.Index
		t.knownAt.Store(uint32(s.since / 1000))
		return fell
	case sent:
		tally.unknown(l, t.address(), from, op.Delta)
	default:
		t.plan.lost[dropFull] += tally.unsent(l, op.Delta, op.Outcome)
		t.since = s.since
	}
	return false
}

// stale returns the age of what is known of other nodes' counts, in microseconds: the age of the requests whose
// reply had them. It is at most maxAge, and maxAge if nothing is known. It has a resolution of a millisecond. Requests
// may call it.
func (t *track) stale(now time.Time, maxAge int64) int64 {
	knownAt := t.knownAt.Load()
	if knownAt == 0 {
		return maxAge
	}
	return min(max(0, int64(int32(uint32(now.UnixMilli())-knownAt)))*1000, maxAge)
}

// noteReadPrev records that the previous counter of the window of limit was read from the owner, at now. Other nodes
// may add to it for catchUp after its window, and until all have made a pending change. Then it is read
// again.
func (t *track) noteReadPrev(w *window, limit *planned, now time.Time, catchUp time.Duration) {
	var again time.Time
	began := time.UnixMicro(int64(w.Index) * limit.Period)
	late := min(catchUp, time.Duration(limit.Period-1)*time.Microsecond)
	if final := began.Add(late); now.Before(final) {
		again = final
	}
	for _, f := range t.formers() {
		if now.Before(f.settled) {
			again = earlier(again, f.settled)
		}
	}
	if w.fresh, w.again = false, 0; !again.IsZero() {
		w.again = uint32((again.Sub(began) + time.Millisecond - 1) / time.Millisecond)
	}
}
