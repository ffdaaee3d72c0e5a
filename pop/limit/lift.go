package limit

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
)

// ErrNotMitigated says that there is nothing to lift.
var ErrNotMitigated = errors.New("limit: the key is not mitigated")

// Lift ends the mitigation of a key at once, on this node and, by Options.Publish, on the
// others. What was counted of the key before, also what waits to be counted or has no reply
// yet, does not count any more: each node that knows of the lift counts in new counters. The
// lift is stored in the key's shard, as soon as it answers; each node that knows of it does so.
// Lift does not wait for that.
func (l *Limiter) Lift(key counter.Key, now time.Time) (mitigation.Record, error) {
	record, err := l.lift(key, now)
	if err != nil {
		return record, err
	}
	if l.o.Publish != nil {
		l.o.Publish(record)
	}
	l.lifts.add(key)
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

// lifts are the keys whose lift this node knows, each with the address of the shard where it
// is stored, as far as this node knows. A shard that was out when the lift was made has the
// mitigation still, and would bring it back.
type lifts struct {
	wake chan struct{} // holds at most one

	mu     sync.Mutex
	stored map[counter.Key]string // guarded by mu
}

// add takes note of a lift that is to be stored.
func (s *lifts) add(key counter.Key) {
	s.mu.Lock()
	if s.stored == nil {
		s.stored = map[counter.Key]string{}
	}
	s.stored[key] = ""
	s.mu.Unlock()
	s.rouse()
}

// passed reports whether key is not lifted any more, and forgets it then.
func (s *lifts) passed(key counter.Key, o Options) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := o.Table.Held(key, o.Now())
	if ok && held.Lifted {
		return false
	}
	delete(s.stored, key)
	return true
}

// rouse lets storeLifts look whether there is something to do.
func (s *lifts) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// liftPause is after how long it is tried again to store a lift.
const liftPause = time.Second

// storeLifts stores each lift in the shard that owns its key, also in the next one when the
// owner changes, until ctx is done. Then it tries once more.
func (l *Limiter) storeLifts(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.lifts.wake:
		case <-timer.C:
		}
		if l.storeLiftsOnce() {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(liftPause)
		}
	}
}

// storeLiftsOnce reports whether all lifts are stored where they belong.
func (l *Limiter) storeLiftsOnce() (all bool) {
	l.lifts.mu.Lock()
	known := maps.Clone(l.lifts.stored)
	l.lifts.mu.Unlock()
	all = true
	for key, at := range known {
		if l.lifts.passed(key, l.o) {
			continue
		}
		owner, _ := l.Owner(key)
		if owner != nil && owner.Addr() == at {
			continue
		}
		if owner == nil || !owner.Available() || l.storeRecord(owner, key) != nil {
			all = false
			continue
		}
		l.lifts.mu.Lock()
		if l.lifts.stored[key] == at {
			l.lifts.stored[key] = owner.Addr()
		}
		l.lifts.mu.Unlock()
	}
	return all
}

// storeRecord writes this node's record of key beside its counters, unless a greater one is
// there.
func (l *Limiter) storeRecord(shard count.Shard, key counter.Key) error {
	return shard.Update(l.o.Secret.RecordKey(key), func(old []byte) ([]byte, int32) {
		now := l.o.Now()
		stored, err := mitigation.ParseStored(old, key, now)
		if err == nil || errors.Is(err, mitigation.ErrExpired) {
			l.Learn(stored, "shard", now)
		}
		mine, held := l.o.Table.Held(key, now)
		if !held || err == nil && !mine.Wins(stored) {
			return nil, 0
		}
		return mine.AppendStored(nil), mine.StoredTTL(now)
	})
}
