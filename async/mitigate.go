package async

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A change is a record that this node made, or a lift that it learned of. The loop publishes and stores it.
type change struct {
	mitigation.Record
	rule *rule.Rule // the exceeded rule; nil for a lift, and if an operator refuses a client
}

// maxChanges is the maximum number of mitigations that requests start before the loop handles them.
// The loop starts further ones itself.
const maxChanges = 1024

// Lasts returns how long from now on the mitigation of a key lasts if its counts exceed a limit of r. back is the time
// until every limit is back at its threshold, and left what is left of the current mitigation. A new mitigation lasts
// until back and r's timeout are over; the current one, if left is positive, until back is over. changes reports
// whether the record of the mitigation changes. It does not for a small extension: otherwise each refused request that
// counts would change the record, on all nodes. Records of rules that shed change even less often, because many keys
// are mitigated for a long time.
func Lasts(r *rule.Rule, left, back time.Duration) (lasts time.Duration, changes bool) {
	if left <= 0 {
		return max(r.MitigationTimeout, back), true
	}
	least := time.Duration(1)
	switch {
	case r.Action == rule.Shed:
		least = max(minExtension, left/2)
	case r.CountsMitigated():
		least = minExtension
	}
	return back, back-left >= least
}

// minExtension is the minimum time by which a mitigation is extended if refused requests count.
const minExtension = 100 * time.Millisecond

// mitigate starts or extends the mitigation of a key whose counts exceed a limit of r. The mitigation ends at the later
// of its start + the rule's timeout and the moment when every limit is back at its threshold. The record has the sample
// if the mitigation is new. mitigate does nothing if maxWaiting changes are already waiting. The request path may call
// it.
func (c *Loop) mitigate(key counter.Key, r *rule.Rule, f finding, sample *mitigation.Sample, maxWaiting int,
	now time.Time) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.o.Table.Generation(key) > f.generation || len(c.changes) >= maxWaiting {
		return // lifted meanwhile, or no room
	}
	record := mitigation.Record{Key: key, Start: now.UnixMicro(), Node: c.o.Node, Why: f.why, Rule: r.Fingerprint()}
	last, known := c.o.Table.Last(key)
	known = known && !last.Lifted
	left := time.Duration(0)
	if known && Acts(r, &last) {
		left = last.Deadline.Sub(now)
	}
	lasts, changes := Lasts(r, left, f.back.Sub(now))
	if !changes {
		return
	}
	record.Generation = max(last.Generation, f.generation)
	if left > 0 {
		// The start may be by another node's clock, so add a duration rather than set an end.
		more := (lasts - last.Deadline.Sub(now) + time.Microsecond - 1).Truncate(time.Microsecond)
		record.Start, record.ByHand, record.Client = last.Start, last.ByHand, last.Client
		record.Lifetime = min(last.Lifetime+more, mitigation.MaxLifetime)
		record.Deadline = last.Deadline.Add(record.Lifetime - last.Lifetime)
	} else {
		kept := Copy(*sample)
		kept.Rule = r.ID
		record.Sample = &kept
		if c.o.LogClients {
			record.Client = kept.Client
		}
		record.Lifetime = lasts.Truncate(time.Microsecond)
		record.Deadline = now.Add(record.Lifetime)
		if known {
			replace(&record, &last)
		}
	}
	if c.merge(record, now) {
		c.changes = append(c.changes, change{record, r})
		notify(c.wake)
	}
}

// replace moves r's start so that r takes precedence over last, the previous mitigation of its key, which may
// end later: by another node's clock, by this node's before it was set, or because the rules no longer act on
// it. The deadline of r stays as it is, by this node's clock.
func replace(r, last *mitigation.Record) { r.Start += max(0, last.End()+1-r.End()) }

// Add starts a mitigation of key for lifetime, on behalf of an operator, on this node and its peers. If r is nil, key
// is that of a client, which is refused regardless of rules. The new mitigation replaces one that ends earlier. client
// may be invalid.
func (c *Loop) Add(key counter.Key, r *rule.Rule, client netip.Addr, lifetime time.Duration,
	now time.Time) (mitigation.Record, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	record := mitigation.Record{
		Key: key, Generation: c.o.Table.Generation(key), Start: now.UnixMicro(),
		Lifetime: lifetime.Truncate(time.Microsecond), Node: c.o.Node,
		ByHand: true, Rule: mitigation.AnyRule, Deadline: now.Add(lifetime),
	}
	if r != nil {
		record.Rule = r.Fingerprint()
	}
	if c.o.LogClients {
		record.Client = client
	}
	if last, known := c.o.Table.Last(key); known && !last.Lifted {
		if Acts(r, &last) && record.Deadline.Before(last.Deadline) {
			return last, fmt.Errorf("async: the key is already mitigated for %v, which is longer: lift that mitigation first",
				last.Deadline.Sub(now).Round(time.Second))
		}
		replace(&record, &last)
	}
	c.merge(record, now)
	c.changes = append(c.changes, change{record, r})
	notify(c.wake)
	return record, nil
}

// Lift ends the mitigation of a key immediately, on this node and, by Options.Publish, on its peers.
// Earlier requests of the key no longer count, even if they are queued or in flight:
// each node that knows of the lift uses new counters. Each such node also stores the lift in
// the key's shard as soon as the shard answers; Lift does not wait for that.
func (c *Loop) Lift(key counter.Key, now time.Time) (mitigation.Record, error) {
	record, ok := c.lift(key, now)
	if !ok {
		return record, errors.New("async: the key is not mitigated")
	}
	c.o.Logger.Info("mitigation lifted", "key", key)
	return record, nil
}

// LiftAll lifts the mitigations of keys as Lift does, and returns how many it lifted.
func (c *Loop) LiftAll(keys []counter.Key, now time.Time) (lifted int) {
	for _, key := range keys {
		if _, ok := c.lift(key, now); ok {
			lifted++
		}
	}
	c.o.Logger.Info("mitigations lifted", "mitigations", lifted)
	return lifted
}

func (c *Loop) lift(key counter.Key, now time.Time) (record mitigation.Record, ok bool) {
	c.changing.Lock()
	held, ok := c.o.Table.Held(key, now)
	if !ok || held.Lifted {
		c.changing.Unlock()
		return held, false
	}
	record = mitigation.Record{
		Key: key, Generation: held.Generation, Lifted: true, Node: c.o.Node,
		Start: now.UnixMicro(), Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
		Rule: held.Rule, Client: held.Client,
	}
	c.merge(record, now)
	c.changes = append(c.changes, change{Record: record})
	c.changing.Unlock()
	c.o.Publish(record)
	notify(c.wake)
	return record, true
}

// Learn merges a record from another node, and reports whether it was new. source is "peer" or
// "shard".
func (c *Loop) Learn(r mitigation.Record, source string, now time.Time) bool {
	if !c.o.LogClients {
		r.Client = netip.Addr{}
	}
	if !c.merge(r, now) {
		return false
	}
	if r.Lifted {
		c.changing.Lock()
		c.changes = append(c.changes, change{Record: r})
		c.changing.Unlock()
	}
	notify(c.wake) // r may be the next to end
	c.metrics.learned.WithLabelValues(source).Inc()
	c.o.Logger.Debug("mitigation learned", "key", r.Key, "from", source, "for", r.Deadline.Sub(now), "why", r.Why)
	return true
}

// Acts reports whether r, as it is now, acts on a record of one of its keys: whether an operator made the record, or
// the counts in it exceed a threshold of r. So raising a threshold frees the clients that the new threshold would not
// have stopped.
func Acts(r *rule.Rule, record *mitigation.Record) bool {
	return record.ByHand || Exceeds(r, record.Why.Limit.Period, record.Estimate)
}

// Exceeds reports whether an estimate for a period, in microseconds, exceeds a threshold of r. A longer period has at
// least as many requests.
func Exceeds(r *rule.Rule, period int64, estimate uint64) bool {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Period.Microseconds() >= period && estimate > l.Threshold {
			return true
		}
	}
	return false
}

// takeChanges publishes and logs new mitigations, and schedules all changes to be stored.
func (c *Loop) takeChanges(now time.Time) {
	c.changing.Lock()
	all := c.changes
	c.changes = nil
	c.changing.Unlock()
	for i := range all {
		ch := &all[i]
		if ch.Sample != nil {
			c.started(ch.rule)
			c.log.started(ch, c.About, now)
		}
		if !ch.Lifted { // a lift was published at once
			c.o.Publish(ch.Record)
		}
		t := c.track(ch.Key)
		t.store = true
		c.send(t)
	}
}

// Records are compared with those of the shards, at most atOnce every comparePause. After a change of the ring, these
// are the records whose owner has changed: the new one may lack them, or still have a mitigation that was lifted
// meanwhile. Every Options.Refresh, these are all records: mitigated keys are not counted, so nothing else would show
// that another node lifted or extended a mitigation.
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

// writeRecord adds a store of this node's record to b: with ADD, or with CAS if the shard has another record.
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
			if t.rule != nil { // shards store neither of these
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
