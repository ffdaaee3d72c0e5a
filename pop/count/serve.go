package count

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
)

// send queues t for the shard that owns it. If a batch with t is in flight, t is queued again
// when it is answered.
func (c *Loop) send(t *track, now time.Time) {
	if t.flying || t.forgotten {
		t.redo = t.flying
		return
	}
	ln := c.owner(t, now)
	if ln == nil {
		ln = &c.nowhere
	}
	ln.push(t)
}

// pump sends batches to the shards that have room for one, and reports whether there were any.
func (c *Loop) pump(now time.Time) (any bool) {
	if c.starts == nil {
		return false
	}
	for _, ln := range c.lanes() {
		for ln.flying < inFlight {
			b := c.fill(ln, now)
			if b == nil {
				break
			}
			ln.flying++
			c.starts(b)
			any = true
		}
	}
	asking := c.asking
	c.asking = nil
	for _, ln := range asking {
		b := ln.ask
		if ln.asking {
			c.asking = append(c.asking, ln)
			continue
		}
		ln.ask, ln.asking, b.begun = nil, true, now
		c.starts(b)
		any = true
	}
	return any
}

// fill returns the next batch for a shard, nil if there is nothing to send now. A shard that is
// down gets an empty one now and then, as a probe.
func (c *Loop) fill(ln *lane, now time.Time) *batch {
	switch {
	case ln.ended:
		return nil
	case ln.shard.Down():
		if c.ending || now.Before(ln.retry) {
			return nil
		}
		ln.retry = now.Add(probePause)
		if ln.flying > 0 || !ln.shard.Available() {
			return nil
		}
		return c.batch(ln, now)
	case ln.waiting() == 0 || now.Before(ln.retry):
		return nil
	}
	b := c.batch(ln, now)
	senders := counter.Senders(c.o.Nodes())
	for len(b.tracks) < inBatch {
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
		c.spare = append(c.spare, b)
		return nil
	}
	return b
}

// batch returns an empty batch.
func (c *Loop) batch(ln *lane, now time.Time) (b *batch) {
	if last := len(c.spare) - 1; last >= 0 {
		b, c.spare = c.spare[last], c.spare[:last]
	} else {
		b = new(batch)
	}
	b.reset()
	b.lane, b.begun = ln, now
	return b
}

// take adds the operations that t needs to b.
func (c *Loop) take(b *batch, t *track, senders int, now time.Time) {
	before := b.Len()
	c.catchUp(t)
	t.advance(now)
	for i := range t.formers {
		if f := &t.formers[i]; !f.asking && !now.Before(f.next) && t.concerns(f, now) {
			c.ask(t, f, now)
		}
	}
	settled := !t.settles.IsZero() && !now.Before(t.settles)
	if settled {
		t.settles = time.Time{}
	}
	c.sends = t.take(c.sends[:0], senders)
	for _, s := range c.sends {
		b.Increments = append(b.Increments, counter.Increment{
			Item: c.item(t.key, s.slot), Delta: s.delta, TTL: counter.TTL(s.limit.Period), Make: !s.made,
		})
		b.sends = append(b.sends, sent{t, s})
	}
	c.slots = t.wants(c.slots[:0], now, settled)
	c.read(b, t)
	if t.store && !t.conflict && len(b.Stores) < maxStores {
		c.writeRecord(b, t, now)
	}
	if t.readRecord.Swap(false) || t.store && t.conflict {
		c.readRecord(b, t)
	}
	if b.Len() > before {
		t.flying = true
		b.tracks = append(b.tracks, t)
	}
}

// item returns the item of a counter of key.
func (c *Loop) item(key counter.Key, s slot) counter.Item {
	return c.o.Secret.CounterItem(c.o.Secret.After(key, s.generation), s.limit, s.index)
}

// read adds reads of the counters c.slots of t to b.
func (c *Loop) read(b *batch, t *track) {
	for _, s := range c.slots {
		b.Reads = append(b.Reads, counter.Read{Item: c.item(t.key, s)})
		b.reads = append(b.reads, read{track: t, slot: s})
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
	c.slots = t.slots(c.slots[:0], f)
	c.read(ln.ask, t)
	c.readRecord(ln.ask, t)
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
	if errors.Is(b.err, counter.ErrNotSent) {
		b.lane.retry = now.Add(retryPause)
		b.lane.ended = c.ending
	}
	for _, t := range b.tracks {
		c.catchUp(t) // first, so that counts from before a lift are dropped
	}
	for i := range b.Increments {
		c.counted(&b.Increments[i], &b.sends[i], b.From, now)
	}
	for i := range b.Stores {
		c.hasStored(&b.Stores[i], b.stores[i], b.lane)
	}
	for i := range b.Reads {
		c.hasRead(&b.Reads[i], &b.reads[i], b, now)
	}
	for _, t := range b.tracks {
		if b.former {
			t.asked(b.lane, b.begun, now, b.err == nil)
		} else {
			t.flying = false
		}
		c.evaluate(t, 0, now)
		switch {
		case t.forgotten && !t.flying:
			c.lose(t)
		case t.redo && !t.flying, t.unsent(), t.store, t.readRecord.Load():
			t.redo = false
			c.send(t, now)
		}
	}
	if len(c.spare) < maxSpare {
		c.spare = append(c.spare, b)
	}
}

// maxSpare is how many batches are kept for reuse.
const maxSpare = 8

// counted handles the outcome of an increment.
func (c *Loop) counted(op *counter.Increment, s *sent, from *counter.Link, now time.Time) {
	switch op.Outcome {
	case counter.Done:
		c.fell(s.counted(&s.send, from, op.Value))
		c.metrics.lag.Observe(float64(now.UnixMicro()-s.flown) / 1e6)
	case counter.Unknown:
		s.unknown(&s.send, from)
	default:
		s.takeBack(&s.send, op.Outcome)
	}
}

// fell adds to the metric of fallen counters if it is true.
func (c *Loop) fell(it bool) {
	if it {
		c.metrics.fell.Inc()
	}
}

// hasRead handles the outcome of a read. An item that a shard refuses to read counts as missing.
func (c *Loop) hasRead(op *counter.Read, r *read, b *batch, now time.Time) {
	t := r.track
	if op.Outcome == counter.NotSent {
		if t.redo = t.redo || !b.former; r.record && !b.former {
			t.readRecord.Store(true)
		}
		return
	}
	if r.record {
		c.hasReadRecord(op, t, b, now)
		return
	}
	// A missing or invalid value counts as 0.
	var value uint64
	if op.Outcome == counter.Done {
		value, _ = counter.ParseNumber(op.Value)
	}
	if b.former {
		c.fell(t.readFormer(r.slot, b.lane, b.From, value))
		return
	}
	// Until then other nodes may still add to the previous window.
	catchUp := 2*c.o.Interval + max(0, c.o.Ahead())
	again, fell := t.read(r.slot, b.From, value, b.begun, catchUp)
	if c.fell(fell); !again.IsZero() {
		c.later.add(t, again)
	}
}
