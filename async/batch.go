package async

import (
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
	case ln.ended, now.Before(ln.retry), down && c.ending, !down && ln.waiting.Load() == 0:
		return nil
	case down:
		ln.retry = now.Add(probePause)
		if ln.flying > 0 || !ln.shard.Available() {
			return nil
		}
		return c.batch(ln, now)
	}
	b := c.batch(ln, now)
	senders := counter.Senders(c.o.Nodes())
	for len(b.tracks) < inBatch && len(b.Stores) < maxStores {
		t := ln.pop()
		if t == nil {
			break
		}
		c.take(b, t, senders, now)
	}
	if b.Len() == 0 {
		c.reuse(b)
		return nil
	}
	return b
}

// take adds the operations that t needs to b.
func (c *Loop) take(b *batch, t *track, senders int, now time.Time) {
	before := b.Len()
	c.catchUp(t)
	c.advance(t, now)
	windows := t.windows()
	for i := range windows {
		w := &windows[i]
		c.increment(b, t.slot(i, w.Index-1), &w.Prev, senders)
		c.increment(b, t.slot(i, w.Index), &w.Cur, senders)
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
func (c *Loop) increment(b *batch, s slot, tally *tally, senders int) {
	if tally.waiting == 0 {
		return
	}
	budget := s.layout.Budget(senders)
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
