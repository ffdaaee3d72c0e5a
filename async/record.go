package async

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// A mitigation's record is stored alongside the counters of its key, by the same batches: with ADD,
// or with CAS if the shard has another record.

// Records are compared with those of the shards, at most atOnce every comparePause: after a change of the ring, those
// whose owner has changed, since the new owner may lack them, or still have a mitigation that was lifted meanwhile; and
// all of them every Options.Refresh: mitigated keys are not counted, so nothing else would show that another node
// lifted or extended a mitigation.
const (
	atOnce       = maxStores
	comparePause = 10 * time.Millisecond

	// evictedPause is the pause before records that wait to be stored are compared after their track was evicted.
	evictedPause = time.Second
)

// compareRecords queues reads of the records that are due for comparison, and returns when to call it next.
func (c *Loop) compareRecords(now time.Time) (next time.Time) {
	if c.o.Refresh > 0 && !now.Before(c.refreshed.Add(c.o.Refresh)) {
		c.refreshed = now
		for r := range c.o.Table.All(now) {
			c.uncompared = append(c.uncompared, r.Key)
		}
	}
	if len(c.uncompared) > 0 && !now.Before(c.comparing) {
		n := min(len(c.uncompared), atOnce)
		for _, key := range c.uncompared[:n] {
			t := c.track(key)
			t.readRecord.Store(true)
			c.send(t)
		}
		c.uncompared, c.comparing = c.uncompared[n:], now.Add(comparePause)
	}
	if len(c.uncompared) > 0 {
		next = c.comparing
	}
	if c.o.Refresh > 0 {
		next = earlier(next, c.refreshed.Add(c.o.Refresh))
	}
	return next
}

// writeRecord adds a store of this node's record to b.
func (c *Loop) writeRecord(b *batch, t *track, now time.Time) {
	ours, held := c.o.Table.Held(t.key, now)
	if !held {
		t.store = false
		return
	}
	b.Stores = append(b.Stores, counter.Store{
		Item: c.o.Secret.RecordItem(t.key), Value: ours.AppendStored(nil), TTL: ours.StoredTTL(now), CAS: t.version(),
	})
	b.stores = append(b.stores, t)
}

// version returns the version of the record in the shard, or 0 if the shard has none.
func (t *track) version() uint64 {
	if r := t.rarely.Load(); r != nil {
		return r.version
	}
	return 0
}

// maxTries is the maximum number of tries to store a record: other nodes may store theirs meanwhile, and a memcached
// that runs with -C never replaces a record.
const maxTries = 3

// handleStored handles the outcome of a store.
func (t *track) handleStored(outcome counter.Outcome) {
	switch outcome {
	case counter.Done, counter.Refused:
		t.store = false
	case counter.Absent: // the shard has another record
		t.readRecord.Store(true)
		t.rare().tries++
	}
}

// handleRecord merges the record of t that the shard sent, and schedules this node's record to be stored if it wins. It
// ignores invalid records: they will be overwritten. An expired record still tells how often the key was lifted.
func (c *Loop) handleRecord(t *track, op *counter.Read, now time.Time) {
	if op.Outcome == counter.NotSent {
		t.readRecord.Store(true)
		return
	}
	var stored mitigation.Record
	active := false
	if op.Outcome == counter.Done { // most keys have no record
		var err error
		stored, err = mitigation.ParseStored(op.Value, t.key, now)
		active = err == nil
		if active || errors.Is(err, mitigation.ErrExpired) {
			if t.rule != nil { // records from shards lack the explanation
				stored.Rule, stored.Client = t.rule.Fingerprint(), t.lastClient()
			}
			c.Learn(stored, "shard", now)
		}
	}
	if op.CAS != t.version() {
		t.rare().version = op.CAS
	}
	ours, held := c.o.Table.Held(t.key, now)
	if active && !(held && ours.Wins(stored)) {
		t.readRecord.Store(false) // the table has it, even if it evicted the record during the read
	}
	t.store = held && (!active || ours.Wins(stored))
	if r := t.rarely.Load(); r != nil {
		if t.store = t.store && r.tries < maxTries; !t.store {
			r.tries = 0
		}
	}
}
