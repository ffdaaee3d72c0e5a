package limit

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// ErrNotMitigated is returned by Lift if the key has no mitigation.
var ErrNotMitigated = errors.New("limit: the key is not mitigated")

// Lift ends the mitigation of a key at once, on this node and, by Options.Publish, on its peers.
// Earlier requests of the key no longer count, even if they wait to be counted or have no reply
// yet: each node that knows of the lift uses new counters. Each such node also stores the lift in
// the key's shard as soon as the shard answers; Lift does not wait for that.
func (l *Limiter) Lift(key counter.Key, now time.Time) (mitigation.Record, error) {
	record, err := l.lift(key, now)
	if err != nil {
		return record, err
	}
	if l.o.Publish != nil {
		l.o.Publish(record)
	}
	l.StoreLift(key)
	l.o.Logger.Info("mitigation lifted", "key", key)
	return record, nil
}

// lift merges the record of a lift into the table.
func (l *Limiter) lift(key counter.Key, now time.Time) (record mitigation.Record, err error) {
	l.merging.Lock()
	defer l.merging.Unlock()
	held, ok := l.o.Table.Held(key, now)
	if !ok || held.Lifted {
		return held, ErrNotMitigated
	}
	record = mitigation.Record{
		Key: key, Generation: held.Generation, Lifted: true, Node: l.o.Node,
		Start: now.UnixMicro(), Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
	}
	l.o.Table.Merge(record, now)
	return record, nil
}
