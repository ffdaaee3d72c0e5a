package async

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// A mitigation's record is stored alongside the counters of its key, by the same batches: with ADD,
// or with CAS if the shard has another record.

// liftPause is the pause before lifts are stored again after a key with one was evicted.
const liftPause = time.Second

// keepRecords has lifts stored again when c.lifting is due: after a change of the shards, since a
// shard that was out during a lift still has the mitigation, and would bring it back. If
// Options.Refresh is set, it also reads the records of active mitigations: their keys are not
// counted, so nothing else would show that another node lifted or prolonged one. It returns when
// to call it next.
func (c *Loop) keepRecords(now time.Time) (next time.Time) {
	lifting := !c.lifting.IsZero() && !now.Before(c.lifting)
	refresh := c.o.Refresh > 0 && !now.Before(c.refreshed.Add(c.o.Refresh))
	if lifting || refresh {
		for r := range c.o.Table.All(now) {
			if r.Lifted && lifting || !r.Lifted && refresh {
				t := c.track(r.Key)
				t.store = t.store || r.Lifted
				t.readRecord.Store(!r.Lifted || t.readRecord.Load())
				c.send(t, now)
			}
		}
	}
	if lifting {
		c.lifting = time.Time{}
	}
	if refresh {
		c.refreshed = now
	}
	if next = c.lifting; c.o.Refresh > 0 {
		next = earlier(next, c.refreshed.Add(c.o.Refresh))
	}
	return next
}

// writeRecord adds a store of this node's record to b.
func (c *Loop) writeRecord(b *batch, t *track, now time.Time) {
	mine, held := c.o.Table.Held(t.key, now)
	if !held {
		t.store = false
		return
	}
	b.Stores = append(b.Stores, counter.Store{
		Item: c.o.Secret.RecordItem(t.key), Value: mine.AppendStored(nil), TTL: mine.StoredTTL(now), CAS: t.version(),
	})
	b.stores = append(b.stores, t)
}

// version returns the version of the record in the shard, or 0 if it has none.
func (t *track) version() uint64 {
	if r := t.rarely.Load(); r != nil {
		return r.version
	}
	return 0
}

func (t *track) setVersion(version uint64) {
	if version != t.version() {
		t.rare().version = version
	}
}

// maxTries is how often a record is stored at most. Other nodes may store theirs meanwhile, and a memcached that runs
// with -C never replaces one.
const maxTries = 3

// handleStored handles the outcome of a store.
func (t *track) handleStored(outcome counter.Outcome) {
	switch outcome {
	case counter.Done, counter.Refused:
		t.store = false
	case counter.Absent: // the shard has another record
		t.readRecord.Store(true)
		t.rare().tries++
		t.store = t.rare().tries < maxTries
	}
	if r := t.rarely.Load(); r != nil && !t.store {
		r.tries = 0
	}
}

// handleRecord merges the record of t that was read. Invalid records are ignored: they will be
// overwritten. An expired record still tells how often the key was lifted.
func (c *Loop) handleRecord(t *track, op *counter.Read, b *batch, now time.Time) {
	var stored mitigation.Record
	active := false
	if op.Outcome == counter.Done { // most keys have no record
		var err error
		stored, err = mitigation.ParseStored(op.Value, t.key, now)
		active = err == nil
		if active || errors.Is(err, mitigation.ErrExpired) {
			if t.plan != nil { // records from shards lack the explanation
				stored.Rule, stored.Client = t.plan.rule.Fingerprint(), t.lastClient()
			}
			c.Learn(stored, "shard", now)
		}
	}
	if b.former {
		t.store = t.store || active // it moves to the owner
		return
	}
	t.setVersion(op.CAS)
	if mine, _ := c.o.Table.Held(t.key, now); active && !mine.Wins(stored) {
		t.store = false           // the owner has it
		t.readRecord.Store(false) // so has the table, even if it evicted the record during the read
	}
}
