package count

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// The record of a mitigation is stored beside the counters of its key, by the batches that count
// it: with ADD, and with CAS once it is known that there is another one.

// liftPause is how often it is tried to store a lift.
const liftPause = time.Second

// StoreLift has the lift of key stored in the shard that owns it, and in each that owns it later:
// a shard that was out when the lift was made has the mitigation still, and would bring it back.
func (c *Loop) StoreLift(key counter.Key) {
	c.shared.Lock()
	c.lifted = append(c.lifted, key)
	c.shared.Unlock()
	c.wakeUp()
}

// takeBegun announces the mitigations that requests have started, and has them stored, as the
// lifts that there were.
func (c *Loop) takeBegun(now time.Time) {
	c.shared.Lock()
	all, lifted := append([]begun(nil), c.begun...), c.lifted
	clear(c.begun)
	c.begun, c.lifted = c.begun[:0], nil
	c.shared.Unlock()
	if len(all) > 0 {
		c.queue.Flush(c.flush) // so that the keys have tracks
	}
	for _, b := range all {
		c.o.Started(b.record, b.rule)
		if t := c.peek(b.record.Key); t != nil {
			t.store = true
			c.send(t, now)
		}
	}
	for _, key := range lifted {
		c.lifts[key], c.lifting = nil, now
	}
}

// keepRecords has lifts stored where they are not, and with Options.Refresh the records of active
// mitigations read: their keys are not counted, so that nothing else would tell that another node
// has lifted or prolonged one. It returns when it is to be called next.
func (c *Loop) keepRecords(now time.Time) (next time.Time) {
	if !c.lifting.IsZero() && !now.Before(c.lifting) {
		c.lifting = time.Time{}
		for key, at := range c.lifts {
			if c.storeLift(key, at, now) {
				c.lifting = now.Add(liftPause)
			}
		}
	}
	next = c.lifting
	if c.o.Refresh > 0 {
		if !now.Before(c.renewed.Add(c.o.Refresh)) {
			c.renewed = now
			for _, r := range c.o.Table.Records(now) {
				if !r.Lifted {
					t := c.track(r.Key, nil, now, nil)
					t.readRecord.Store(true)
					c.send(t, now)
				}
			}
		}
		next = sooner(next, c.renewed.Add(c.o.Refresh))
	}
	return next
}

// storeLift has a lift stored unless it is stored where its key belongs, and reports whether that
// is to be looked at again.
func (c *Loop) storeLift(key counter.Key, at *lane, now time.Time) bool {
	if held, ok := c.o.Table.Held(key, now); !ok || !held.Lifted {
		delete(c.lifts, key)
		return false
	}
	if owner, err := c.placed.Load().ring.Owner(key); err != nil || owner == at {
		return false // move calls for the next look
	}
	t := c.track(key, nil, now, nil)
	t.store = true
	c.send(t, now)
	return true
}

// stored takes in that t's record, or a greater one, is stored in a shard.
func (c *Loop) stored(t *track, at *lane) {
	t.store = false
	if _, lifted := c.lifts[t.key]; lifted {
		c.lifts[t.key] = at
	}
}

// readRecord puts the read of t's record into b.
func (c *Loop) readRecord(b *batch, t *track) {
	b.Reads = append(b.Reads, counter.Read{Item: c.o.Secret.RecordItem(t.key)})
	b.reads = append(b.reads, read{track: t, record: true})
}

// writeRecord puts the store of this node's record into b.
func (c *Loop) writeRecord(b *batch, t *track, now time.Time) {
	mine, held := c.o.Table.Held(t.key, now)
	if !held {
		t.store = false
		return
	}
	b.Stores = append(b.Stores, counter.Store{
		Item: c.o.Secret.RecordItem(t.key), Value: mine.AppendStored(nil), TTL: mine.StoredTTL(now), CAS: t.version,
	})
	b.stores = append(b.stores, t)
}

// hasStored takes in what became of a store.
func (c *Loop) hasStored(op *counter.Store, t *track, at *lane) {
	switch op.Outcome {
	case counter.Done:
		c.stored(t, at)
		t.version = 0
	case counter.Refused:
		t.store, t.version = false, 0
	case counter.Absent:
		t.conflict = true
	}
}

// hasReadRecord takes in t's record as a shard has it.
func (c *Loop) hasReadRecord(op *counter.Read, t *track, b *batch, now time.Time) {
	stored, ok := c.learn(op.Value, t, now)
	switch {
	case b.former:
		t.store = t.store || ok // it follows to the owner
	case t.conflict:
		mine, held := c.o.Table.Held(t.key, now)
		t.conflict, t.version = false, op.CAS
		if t.store = t.store && held; t.store && ok && !mine.Wins(stored) {
			c.stored(t, b.lane)
		}
	}
}

// learn merges a record as it is stored. Invalid ones are ignored: they will be overwritten. One
// that has expired tells of the lifts before it.
func (c *Loop) learn(value []byte, t *track, now time.Time) (mitigation.Record, bool) {
	if value == nil {
		return mitigation.Record{}, false
	}
	r, err := mitigation.ParseStored(value, t.key, now)
	if err != nil && !errors.Is(err, mitigation.ErrExpired) {
		return r, false
	}
	c.o.Learn(r, now)
	return r, err == nil
}
