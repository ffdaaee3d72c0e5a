package limit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// ErrNotMitigated says that there is nothing to lift.
var ErrNotMitigated = errors.New("limit: the key is not mitigated")

// Lift ends the mitigation of a key at once, on this node and, by Options.Publish, on the
// others. The key's counts are forgotten first, in its shard and on each node, since they
// would mitigate it again. Lift blocks for some round trips. After an error of the shard the
// mitigation is lifted all the same, but counts that the shard still has may start another
// one.
func (l *Limiter) Lift(key counter.Key, now time.Time) (mitigation.Record, error) {
	if held, ok := l.o.Table.Held(key, now); !ok || held.Lifted {
		return held, ErrNotMitigated
	}
	p := l.placed.Load()
	owner, shardErr := p.ring.Owner(key)
	if shardErr == nil {
		shardErr = owner.shard.Delete(l.counterKeys(key, now)...)
	}
	// Those that owned the key before matter as well, unless they are gone.
	for _, past := range p.past {
		if former, err := past.ring.Owner(key); err == nil && former != owner {
			_ = former.shard.Delete(l.counterKeys(key, now)...)
		}
	}
	l.forgetCounts(key)
	record, err := l.lift(key, now)
	if err != nil {
		return record, err
	}
	if l.o.Publish != nil {
		l.o.Publish(record)
	}
	l.o.Logger.Info("mitigation lifted", "key", key)
	if shardErr == nil {
		shardErr = owner.shard.Update(l.o.Secret.RecordKey(key), func(old []byte) ([]byte, int32) {
			if stored, ok := l.learnStored(old, key); ok && !record.Wins(stored) {
				return nil, 0 // another node mitigates the key anew
			}
			return record.AppendStored(nil), int32(record.Lifetime / time.Second)
		})
	}
	if shardErr != nil {
		return record, fmt.Errorf("limit: the mitigation of %v is lifted, its counts are not: %w", key, shardErr)
	}
	return record, nil
}

// lift merges the record of a lift into the table.
func (l *Limiter) lift(key counter.Key, now time.Time) (record mitigation.Record, err error) {
	l.merging.Lock()
	defer l.merging.Unlock()
	held, ok := l.o.Table.Held(key, now)
	if !ok || held.Lifted {
		return record, ErrNotMitigated
	}
	record = mitigation.Record{
		Key: key, Generation: held.Generation, Lifted: true, Node: l.o.Node,
		Start: now.UnixMicro(), Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
	}
	l.o.Table.Merge(record, now)
	return record, nil
}

// forgetCounts forgets what this node counted of key. What is on its way to the shard is
// counted there, from zero.
func (l *Limiter) forgetCounts(key counter.Key) {
	t, ok := l.tracks[key[0]%trackParts].Peek(key)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
}

// counterKeys returns the keys in memcached of what may be counted of key: rules differ in
// their limits, and the key does not tell its rule.
func (l *Limiter) counterKeys(key counter.Key, now time.Time) (keys []string) {
	var seen []counter.Limit
	add := func(limit counter.Limit) {
		if slices.ContainsFunc(seen, func(other counter.Limit) bool { return sameCounters(other, limit) }) {
			return
		}
		seen = append(seen, limit)
		number, _ := counter.Window(now, limit.Period)
		keys = append(keys, l.o.Secret.CounterKey(key, limit, number), l.o.Secret.CounterKey(key, limit, number-1))
	}
	rules := l.rules.Load()
	for _, r := range rules.set.Rules() {
		for _, each := range r.Limits {
			add(each.Counted())
		}
	}
	for _, list := range rules.outdated {
		for _, o := range list {
			add(o.limit)
		}
	}
	return keys
}
