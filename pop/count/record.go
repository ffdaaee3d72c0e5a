package count

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// A mitigation's record is stored beside the counters of its key, by the same batches: with ADD,
// or with CAS if the shard has another record.

// liftPause is how often storing a lift is retried.
const liftPause = time.Second

// StoreLift stores the lift of key in its owner, and in each later owner: a shard that was out
// during the lift still has the mitigation, and would bring it back.
func (c *Loop) StoreLift(key counter.Key) {
	c.shared.Lock()
	c.lifted = append(c.lifted, key)
	c.shared.Unlock()
	c.wakeUp()
}

// takeBegun announces the mitigations that requests started, and has them and new lifts stored.
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

// keepRecords stores lifts that are not stored yet. If Options.Refresh is set, it also reads the
// records of active mitigations: their keys are not counted, so nothing else would show that
// another node lifted or prolonged one. It returns when to call it next.
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

// storeLift has a lift stored, unless its key's owner has it. It reports whether to check again.
func (c *Loop) storeLift(key counter.Key, at *lane, now time.Time) bool {
	if held, ok := c.o.Table.Held(key, now); !ok || !held.Lifted {
		delete(c.lifts, key)
		return false
	}
	if owner, err := c.placed.Load().ring.Owner(key); err != nil || owner == at {
		return false // move schedules the next check
	}
	t := c.track(key, nil, now, nil)
	t.store = true
	c.send(t, now)
	return true
}

// stored records that a shard has t's record, or a greater one.
func (c *Loop) stored(t *track, at *lane) {
	t.store = false
	if _, lifted := c.lifts[t.key]; lifted {
		c.lifts[t.key] = at
	}
}

// readRecord adds a read of t's record to b.
func (c *Loop) readRecord(b *batch, t *track) {
	b.Reads = append(b.Reads, counter.Read{Item: c.o.Secret.RecordItem(t.key)})
	b.reads = append(b.reads, read{track: t, record: true})
}

// writeRecord adds a store of this node's record to b.
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

// hasStored handles the outcome of a store.
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

// hasReadRecord handles the outcome of a read of t's record.
func (c *Loop) hasReadRecord(op *counter.Read, t *track, b *batch, now time.Time) {
	stored, ok := c.learn(op.Value, t, now)
	switch {
	case b.former:
		t.store = t.store || ok // it moves to the owner
	case t.conflict:
		mine, held := c.o.Table.Held(t.key, now)
		t.conflict, t.version = false, op.CAS
		if t.store = t.store && held; t.store && ok && !mine.Wins(stored) {
			c.stored(t, b.lane)
		}
	}
}

// learn merges a stored record. Invalid records are ignored: they will be overwritten. An expired
// one still tells how often the key was lifted.
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
