package async

import (
	"errors"
	"math"
	"time"

	"github.com/edgelimit/edge/counter"
)

const (
	// inBatch is the maximum number of keys in a batch: about 5 ms of a memcached's work.
	inBatch = 1024

	// atATime is the maximum number of batches in flight to a shard. With two, the shard stays
	// busy while the loop handles the answers to one.
	atATime = 2

	// retryPause is the pause before an unreachable shard that is not yet down is retried.
	retryPause = 20 * time.Millisecond

	// probePause is the pause between probes of a shard that is down.
	probePause = 100 * time.Millisecond

	// maxStores is the maximum number of records that a batch writes. Further records wait for the next batch.
	maxStores = 256

	// maxSpare is the maximum number of batches kept for reuse.
	maxSpare = 8
)

// A slot identifies what an operation of a batch is about, a counter or a record, and the state of the track that sent
// it.
type slot struct {
	*track
	resets uint16 // track.resets when the operation was added
	nth    int    // index in the rule's limits, or ofRecord
	layout counter.Layout
	index  uint32 // of the window
	since  int64  // arrival of the oldest request of an increment, in microseconds
}

const ofRecord = -1

// slot returns the slot of t's ith limit in a window.
func (t *track) slot(i int, index uint32) slot {
	return slot{track: t, resets: t.resets, nth: i, layout: t.limit(i).Layout, index: index, since: t.since}
}

// find returns the window and the tally of s, or nil if the state that sent the operation is gone: its window has
// passed, or the track was reset or evicted.
func (s *slot) find() (*limitWindows, *tally) {
	if s.resets != s.track.resets || s.place == evicted {
		return nil, nil
	}
	w := &s.windows()[s.nth]
	return w, w.At(s.index)
}

// item returns the item of t's counter for the ith limit in a window.
func (c *Loop) item(t *track, i int, index uint32) counter.Item {
	return c.o.Secret.CounterItem(c.o.Secret.After(t.key, t.generation), t.limit(i), int64(index))
}

// A batch holds the operations of one exchange with a shard, and the slots and tracks that they are for.
type batch struct {
	counter.Batch
	lane  *lane
	begun time.Time
	err   error

	tracks     []*track
	increments []slot
	reads      []slot
	stores     []*track
}

// read adds a read for s.
func (b *batch) read(s slot, item counter.Item) {
	b.Reads = append(b.Reads, counter.Read{Item: item})
	b.reads = append(b.reads, s)
}

// batch returns an empty batch.
func (c *Loop) batch(ln *lane, now time.Time) (b *batch) {
	if last := len(c.spare) - 1; last >= 0 {
		b, c.spare = c.spare[last], c.spare[:last]
	} else {
		b = new(batch)
	}
	b.lane, b.begun, b.err = ln, now, nil
	return b
}

// reuse clears b and keeps it for another exchange.
func (c *Loop) reuse(b *batch) {
	if len(c.spare) == maxSpare {
		return
	}
	b.Reset()
	clear(b.tracks)
	clear(b.increments)
	clear(b.reads)
	clear(b.stores)
	b.tracks, b.increments, b.reads, b.stores = b.tracks[:0], b.increments[:0], b.reads[:0], b.stores[:0]
	c.spare = append(c.spare, b)
}

// send queues t for the shard that owns it. If a batch with t is in flight, t is queued once that
// batch is answered.
func (c *Loop) send(t *track) { c.lane(t.key).push(t) }

// pump sends batches to the shards that have room for one, and reports whether it sent any.
func (c *Loop) pump(now time.Time) (sent bool) {
	if c.exchange == nil {
		return false
	}
	for _, ln := range c.seen.all {
		for ln.flying < atATime {
			b := c.fill(ln, now)
			if b == nil {
				break
			}
			ln.flying++
			c.exchange(b)
			sent = true
		}
	}
	return sent
}

// fill returns the next batch for a shard, or nil if there is nothing to send now. For a shard that
// is down it returns an empty batch, at most once every probePause, as a probe.
func (c *Loop) fill(ln *lane, now time.Time) *batch {
	down := ln.shard.Down()
	switch {
	case now.Before(ln.retry), down && c.ending, !down && ln.waiting.Load() == 0:
		return nil
	case down:
		ln.retry = now.Add(probePause)
		if ln.flying > 0 || !ln.shard.Available() {
			return nil
		}
		return c.batch(ln, now)
	}
	b := c.batch(ln, now)
	for len(b.tracks) < inBatch && len(b.Stores) < maxStores {
		t := ln.pop()
		if t == nil {
			break
		}
		c.take(b, t, now)
	}
	if b.Len() == 0 {
		c.reuse(b)
		return nil
	}
	return b
}

// take adds the operations that t needs to b.
func (c *Loop) take(b *batch, t *track, now time.Time) {
	before := b.Len()
	defer c.lock(t.key).mu.Unlock()
	c.catchUp(t, now)
	c.advance(t, now)
	windows := t.windows()
	for i := range windows {
		w := &windows[i]
		c.increment(b, t.slot(i, w.Index-1), &w.Prev)
		c.increment(b, t.slot(i, w.Index), &w.Cur)
		if t.due(i, now) {
			b.read(t.slot(i, w.Index-1), c.item(t, i, w.Index-1))
			if w.fresh {
				t.readRecord.Store(true)
			}
		}
	}
	if !t.unsent() {
		t.since = 0
	}
	if t.readRecord.Swap(false) {
		b.read(slot{track: t, nth: ofRecord}, c.o.Secret.RecordItem(t.key))
	} else if t.store {
		c.writeRecord(b, t, now)
	}
	if b.Len() > before {
		t.place = inFlight
		b.tracks = append(b.tracks, t)
	}
}

// increment adds an increment to b by the waiting requests of a tally, but at most by this node's budget.
func (c *Loop) increment(b *batch, s slot, tally *tally) {
	if tally.waiting == 0 {
		return
	}
	budget := uint64(math.MaxUint64)
	if s.layout != counter.Plain {
		budget = s.layout.Budget(counter.Senders(c.o.Nodes()))
	}
	if budget == 0 { // see Layout.MaxNodes
		c.metrics.lose(dropNodes, tally.keep(s.layout))
		return
	}
	delta, full := tally.send(s.layout, budget)
	c.metrics.lose(dropFull, full)
	if delta == 0 {
		return
	}
	b.Increments = append(b.Increments, counter.Increment{
		Item: c.item(s.track, s.nth, s.index), Delta: delta,
		Create: !tally.exists, Start: tally.start(s.layout), TTL: counter.TTL(s.limit(s.nth).Period),
	})
	b.increments = append(b.increments, s)
}

// answered handles the answers to a batch, or its failure.
func (c *Loop) answered(b *batch) {
	now := c.o.Now()
	b.lane.flying--
	if errors.Is(b.err, counter.ErrNotSent) {
		b.lane.retry = now.Add(retryPause)
	}
	for _, t := range b.tracks {
		part := c.lock(t.key)
		c.catchUp(t, now) // first, to drop counts from before a lift
		part.mu.Unlock()
	}
	for i := range b.Increments {
		c.handleIncrement(&b.increments[i], &b.Increments[i], now)
	}
	for i := range b.Stores {
		b.stores[i].handleStored(b.Stores[i].Outcome)
	}
	for i := range b.Reads {
		switch s, op := &b.reads[i], &b.Reads[i]; {
		case s.nth == ofRecord:
			c.handleRecord(s.track, op, now)
		default:
			c.handleRead(s, op, b.begun)
		}
	}
	for _, t := range b.tracks {
		if t.place == evicted {
			c.drop(t)
			continue
		}
		t.place = nowhere
		// Without news, an evaluation would only renew a record that the table has evicted, and evict others.
		if t.news && t.rule != nil { // without a rule, only its record matters
			if r := c.rules.Load().Current(t.rule); r != nil { // else the rule was removed
				c.update(t, r, now)
				c.evaluate(t, now.UnixMicro()-t.knownAt.age(now, math.MaxInt32), now)
			}
			t.news = false
		}
		if t.hasWork(now) {
			c.send(t)
		}
	}
	c.reuse(b)
}

// handleIncrement handles the outcome of an increment.
func (c *Loop) handleIncrement(s *slot, op *counter.Increment, now time.Time) {
	defer c.lock(s.key).mu.Unlock()
	w, tally := s.find()
	s.news = true
	switch made := op.Outcome == counter.Done || op.Outcome == counter.Unknown; {
	case tally == nil && !made:
		c.metrics.lose(dropShard, s.layout.Sum(op.Delta))
	case tally == nil:
	case op.Outcome == counter.Done:
		others, fell := tally.reply(s.layout, op.Value, op.Delta)
		w.others = w.others || others && s.index == w.Index
		s.knownAt = stamp(s.since / 1000)
		c.countFallen(s, fell, now)
	case made:
		tally.unknown(s.layout, op.Delta)
	default:
		full, refused := tally.unmade(s.layout, op)
		c.metrics.lose(dropFull, full)
		c.metrics.lose(dropRefused, refused)
		s.track.since = s.since
		c.countFallen(s, op.Outcome != counter.NotSent && tally.fall(), now)
	}
	if op.Outcome == counter.Done {
		c.metrics.lag.Observe(float64(now.UnixMicro()-s.since) / 1e6)
	}
}

// handleRead handles the value of the previous counter, which was read at begun or later. An invalid value, or a
// refusal, changes no count.
func (c *Loop) handleRead(s *slot, op *counter.Read, begun time.Time) {
	if op.Outcome == counter.NotSent {
		return
	}
	late := 2*c.o.Interval + max(0, c.o.Ahead()) // may block, but requests wait for the lock below
	defer c.lock(s.key).mu.Unlock()
	w, tally := s.find()
	if tally == nil {
		return
	}
	if value, ok := op.Count(); ok {
		_, fell := tally.reply(s.layout, value, 0)
		c.countFallen(s, fell, begun)
	}
	s.news = true
	if s.index == w.Index-1 {
		w.noteReadPrev(s.limit(s.nth), begun, late)
	}
}

// countFallen increments the metric of fallen counters if that of s fell. It ignores a counter whose key had another
// owner in a window that still counts: the new owner may lack those counts.
func (c *Loop) countFallen(s *slot, fell bool, now time.Time) {
	if !fell {
		return
	}
	former := c.former.lane(s.key)
	period := time.Duration(s.limit(s.nth).Period) * time.Microsecond
	if former == nil || former == c.seen.lane(s.key) || !now.Before(c.moved.Add(2*period)) {
		c.metrics.fallen.Add(1)
	}
}

// A tally holds what this node knows of a key's requests in one window. Its values have the layout of the limit, and
// are added and compared field by field. A field that overflows stays at its maximum, far above the threshold.
type tally struct {
	// known is the size of a set of requests that the PoP received, none of which is waiting: see the package comment. It
	// includes own requests as soon as they are sent.
	known uint64

	waiting uint64 // own requests that are not yet sent

	// answered is the greatest value in any reply: a lower bound of the requests that shards have counted. A
	// counter that must be created starts with it.
	answered uint64

	// unanswered is the number of own requests that were sent without an answer. A shard may still count them, so they use
	// up the budget of a packed field. It is 0 for plain counters.
	unanswered uint64

	gap    uint8 // requests that other nodes counted between the last two replies, at most 255
	exists bool  // the shard has the counter, as far as this node knows
	fell   bool  // a reply showed that the shard has lost counts
}

// all returns a lower bound of the requests in the window.
func (t *tally) all(l counter.Layout) uint64 { return l.Add(t.known, t.waiting) }

// add adds delta to the waiting requests, and returns how many requests it drops because waiting ones already fill the
// field.
func (t *tally) add(l counter.Layout, delta uint64) (full uint64) {
	full = l.Sum(t.waiting)
	t.waiting = l.Add(t.waiting, delta)
	return full + l.Sum(delta) - l.Sum(t.waiting)
}

// send returns the requests to send now: those that wait, but at most budget per field, less the unanswered ones. The
// rest waits for a reply. send drops requests for a full field; full is their sum.
//
// Plain counters have no budget: send takes everything.
func (t *tally) send(l counter.Layout, budget uint64) (delta, full uint64) {
	delta = t.waiting
	if l != counter.Plain {
		stopped := l.Below(l.Each(l.Stop()-1), t.known)
		full = l.Sum(t.waiting & stopped)
		t.waiting &^= stopped
		delta = l.Min(t.waiting, l.Sub(l.Each(budget), t.unanswered))
	}
	t.waiting -= delta
	t.known = l.Add(t.known, delta)
	return delta, full
}

// keep makes the waiting requests known without sending them, and returns how many they are.
func (t *tally) keep(l counter.Layout) (n uint64) {
	n = l.Sum(t.waiting)
	t.known, t.waiting = l.Add(t.known, t.waiting), 0
	return n
}

// start returns the value with which a missing counter is created. A packed field starts below its stop, so that there
// is room for the increments that all senders may have in flight.
func (t *tally) start(l counter.Layout) uint64 {
	if l == counter.Plain {
		return t.answered
	}
	return l.Min(t.answered, l.Each(l.Stop()-1))
}

// reply records a value of the counter after delta of this node's requests were added to it; delta is 0 if it was only
// read. It reports whether other nodes have counted since the last reply, and whether the value shows for the first
// time that the shard has lost counts.
func (t *tally) reply(l counter.Layout, value, delta uint64) (others, fell bool) {
	fell = l.Below(value, l.Add(t.answered, delta)) != 0 && t.fall()
	others = l.Below(t.known, value) != 0
	if t.answered > 0 {
		t.gap = uint8(min(l.Sum(l.Sub(value, t.known)), 255))
	}
	t.known, t.answered = l.Max(t.known, value), l.Max(t.answered, value)
	t.exists = t.exists || value > 0
	return others, fell
}

// fall records that the shard has lost counts, and reports whether that is new.
func (t *tally) fall() (first bool) {
	first, t.fell = !t.fell, true
	return first
}

// unknown records that delta was sent without an answer.
func (t *tally) unknown(l counter.Layout, delta uint64) {
	if l != counter.Plain {
		t.unanswered = l.Add(t.unanswered, delta)
	}
}

// unmade records that delta was provably not counted. It waits again, unless the shard has refused it or has not kept
// the counter that was created for it: then only this node counts it, and lost is its sum. full is the sum of the
// dropped requests: see add.
func (t *tally) unmade(l counter.Layout, op *counter.Increment) (full, lost uint64) {
	t.exists = t.exists && op.Outcome == counter.NotSent
	if op.Outcome == counter.Refused || op.Outcome == counter.Absent && op.Create {
		return 0, l.Sum(op.Delta)
	}
	t.known = l.Sub(t.known, op.Delta)
	return t.add(l, op.Delta), 0
}
