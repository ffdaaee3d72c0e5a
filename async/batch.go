package async

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
)

const (
	// inBatch is the maximum number of keys in a batch: about 5 ms of a memcached's work.
	inBatch = 1024

	// inFlight is the maximum number of batches in flight to a shard. With two, the shard stays
	// busy while the loop handles the answers to one.
	inFlight = 2

	// retryPause is the pause before an unreachable shard that is not yet down is retried.
	retryPause = 20 * time.Millisecond

	// probePause is the pause between probes of a shard that is down.
	probePause = 100 * time.Millisecond

	// maxStores is the maximum number of records that a batch writes. Further ones wait for the next batch.
	maxStores = 256

	// maxAsk is the maximum number of keys that a batch reads from a former shard. Further ones
	// are read with their next count.
	maxAsk = 1 << 14

	// maxSpare is the maximum number of batches kept for reuse.
	maxSpare = 8
)

// A slot identifies one item of a key: the counter of a limit's window in a generation, or the
// key's record if limit is nil.
type slot struct {
	*track
	generation uint32
	index      uint32
	limit      *planned
	since      int64 // of an increment: when its oldest request arrived, in microseconds
}

// item returns the item of s.
func (c *Loop) item(s slot) counter.Item {
	if s.limit == nil {
		return c.o.Secret.RecordItem(s.key)
	}
	return c.o.Secret.CounterItem(c.o.Secret.After(s.key, s.generation), s.limit.Limit, int64(s.index))
}

// A batch holds the operations of one exchange with a shard, and the slots and tracks they are for.
type batch struct {
	memcached.Batch
	lane   *lane
	former bool // reads counters of keys that other shards own now
	begun  time.Time
	err    error

	tracks     []*track
	increments []slot
	reads      []slot
	stores     []*track
}

// read adds a read of s.
func (c *Loop) read(b *batch, s slot) {
	b.Reads = append(b.Reads, counter.Read{Item: c.item(s)})
	b.reads = append(b.reads, s)
}

// batch returns an empty batch.
func (c *Loop) batch(ln *lane, now time.Time) (b *batch) {
	if last := len(c.spare) - 1; last >= 0 {
		b, c.spare = c.spare[last], c.spare[:last]
	} else {
		b = new(batch)
	}
	b.lane, b.former, b.begun, b.err = ln, false, now, nil
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
func (c *Loop) send(t *track, now time.Time) {
	if t.flying || t.forgotten {
		return
	}
	ln := c.owner(t, now)
	if ln == nil {
		ln = &c.unowned
	}
	ln.push(t)
}

// pump sends batches to the shards that have room for one, and reports whether it sent any.
func (c *Loop) pump(now time.Time) (sent bool) {
	if c.exchange == nil {
		return false
	}
	for _, ln := range c.seen.all {
		for ln.flying < inFlight {
			b := c.fill(ln, now)
			if b == nil {
				break
			}
			ln.flying++
			c.exchange(b)
			sent = true
		}
	}
	asking := c.asking
	c.asking = nil
	for _, ln := range asking {
		if ln.asking {
			c.asking = append(c.asking, ln)
			continue
		}
		b := ln.ask
		ln.ask, ln.asking, b.begun = nil, true, now
		c.exchange(b)
		sent = true
	}
	return sent
}

// fill returns the next batch for a shard, or nil if there is nothing to send now. For a shard that
// is down it returns an empty batch, at most once every probePause, as a probe.
func (c *Loop) fill(ln *lane, now time.Time) *batch {
	down := ln.shard.Down()
	switch {
	case ln.ended, now.Before(ln.retry), down && c.ending, !down && ln.waiting == 0:
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
		if c.owner(t, now) != ln {
			c.send(t, now)
			continue
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
	t.advance(now)
	formers := t.formers()
	for i := range formers {
		if f := &formers[i]; !f.asking && !now.Before(f.next) && t.concerns(f, now) {
			c.ask(t, f, now)
		}
	}
	t.send(senders, func(s slot, delta uint64, made bool) {
		b.Increments = append(b.Increments, counter.Increment{Item: c.item(s), Delta: delta, TTL: counter.TTL(s.limit.Period), Make: !made})
		b.increments = append(b.increments, s)
	})
	windows := t.windows()
	for i := range windows {
		if t.due(i, now) {
			c.read(b, t.slot(i, windows[i].Index-1))
			if windows[i].fresh {
				t.readRecord.Store(true)
			}
		}
	}
	if t.readRecord.Swap(false) {
		c.read(b, slot{track: t})
	} else if t.store {
		c.writeRecord(b, t, now)
	}
	if b.Len() > before {
		t.flying = true
		b.tracks = append(b.tracks, t)
	}
}

// ask adds reads of t to the next batch of reads for a former shard.
func (c *Loop) ask(t *track, f *former, now time.Time) {
	ln := f.at
	switch {
	case !ln.shard.Available():
		t.asked(ln, now, now, false)
		return
	case ln.ask == nil:
		ln.ask = c.batch(ln, now)
		ln.ask.former = true
		c.asking = append(c.asking, ln)
	case len(ln.ask.tracks) == maxAsk:
		return
	}
	f.asking = true
	t.slots(f, func(s slot) { c.read(ln.ask, s) })
	c.read(ln.ask, slot{track: t})
	ln.ask.tracks = append(ln.ask.tracks, t)
}

// answered handles the answers to a batch, or its failure.
func (c *Loop) answered(b *batch) {
	now := c.o.Now()
	if b.former {
		b.lane.asking = false
	} else {
		b.lane.flying--
	}
	if errors.Is(b.err, memcached.ErrNotSent) {
		b.lane.retry = now.Add(retryPause)
		b.lane.ended = c.ending
	}
	for _, t := range b.tracks {
		c.catchUp(t) // first, so that counts from before a lift are dropped
	}
	for i := range b.Increments {
		op, s := &b.Increments[i], b.increments[i]
		c.countFallen(s.counted(s, op, b.From))
		if op.Outcome == counter.Done {
			c.metrics.lag.Observe(float64(now.UnixMicro()-s.since) / 1e6)
		}
	}
	for i := range b.Stores {
		b.stores[i].handleStored(b.Stores[i].Outcome)
	}
	for i := range b.Reads {
		op, s := &b.Reads[i], b.reads[i]
		switch {
		case op.Outcome == counter.NotSent:
			if s.limit == nil && !b.former {
				s.readRecord.Store(true)
			}
		case s.limit == nil:
			c.handleRecord(s.track, op, b, now)
		default:
			c.handleRead(s, op, b)
		}
	}
	for _, t := range b.tracks {
		if b.former {
			t.asked(b.lane, b.begun, now, b.err == nil)
		} else {
			t.flying = false
		}
		// Without news, nothing is exceeded that was not before. If the table had no room for the record, another
		// would only evict others.
		if t.news {
			t.news = false
			c.evaluate(t, 0, now)
		}
		switch {
		case t.flying:
		case t.forgotten:
			c.lose(t)
		case t.hasWork(now):
			c.send(t, now)
		}
	}
	c.reuse(b)
}

// countFallen increments the metric of fallen counters if a counter fell.
func (c *Loop) countFallen(fell bool) {
	if fell {
		c.metrics.fallen.Inc()
	}
}

// handleRead handles the value of a counter. If it is missing, invalid or refused, it counts as 0.
func (c *Loop) handleRead(s slot, op *counter.Read, b *batch) {
	var value uint64
	if op.Outcome == counter.Done {
		value, _ = memcached.ParseNumber(op.Value)
	}
	w, tally := s.find(s)
	s.news = true
	if tally == nil {
		return
	}
	more, fell := tally.read(s.limit.Layout, s.address(), b.lane.addr(), b.From, value)
	c.countFallen(fell)
	switch {
	case b.former:
		w.others = w.others || more
	case s.index == w.Index-1:
		if s.noteReadPrev(w, s.limit, b.begun, 2*c.o.Interval+max(0, c.o.Ahead())); w.again != 0 {
			c.later.add(s.track, w.readAgain(s.limit))
		}
	}
}
