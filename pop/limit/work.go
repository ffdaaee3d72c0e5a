package limit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// flush adds what the queue gathered to the tracks of its keys, and sends them on their
// way.
func (l *Limiter) flush(items []async.Item[arrival, offered]) {
	now := l.o.Now()
	rules := l.rules.Load()
	for i := range items {
		what, offered := &items[i].Key, &items[i].Value
		// The request may have been matched long ago, by rules that have changed.
		r := rules.set.Current(offered.rule)
		if r == nil {
			continue
		}
		t := l.track(what.key, r, now, rules.outdated[r])
		t.mu.Lock()
		t.setRule(r, now, rules.outdated[r])
		t.advance(now)
		t.add(offered.n, time.UnixMilli(what.tick))
		t.sample = kept(offered.sample)
		parked := t.parked
		t.mu.Unlock()
		if parked {
			l.evaluate(t)
		}
		l.dispatch(t)
	}
}

// maxSample is how many bytes of each value of a sample are kept.
const maxSample = 256

// kept returns s without what else is in the memory that it points to: the whole line of
// the request.
func kept(s mitigation.Sample) mitigation.Sample {
	for _, text := range []*string{&s.Method, &s.Host, &s.Path} {
		*text = strings.Clone((*text)[:min(len(*text), maxSample)])
	}
	return s
}

// track returns the track of key, a new one if there is none.
func (l *Limiter) track(key counter.Key, r *rule.Rule, now time.Time, outdated []outdated) *track {
	part := l.tracks[key[0]%trackParts]
	t, ok := part.Get(key)
	if !ok {
		t = newTrack(key, r, now, outdated)
		part.Add(key, t)
	}
	return t
}

// forgotten is called for a track that made room for another one. If it is in a lane, its
// counts will still be sent.
func (l *Limiter) forgotten(_ counter.Key, t *track) {
	l.metrics.evicted.Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgotten = true
	if !t.busy {
		l.reckon(t, dropMemory, t.dropUnsent())
	}
}

// dispatch sends t on its way to the shard that owns it, unless it is there already.
// Where it cannot go, the node decides from what it knows.
func (l *Limiter) dispatch(t *track) {
	t.mu.Lock()
	busy := t.busy
	t.busy = true
	t.mu.Unlock()
	if !busy {
		l.send(t)
	}
}

// send passes t, which is busy, to the lane of the shard that owns it. Where there is no
// shard, it waits for one.
func (l *Limiter) send(t *track) {
	for {
		p, ln := l.owner(t)
		switch {
		case ln == nil && l.wait(t, l.nowhere):
			if l.placed.Load() != p {
				l.place() // nobody else may have seen t there
			}
		case ln != nil && ln.enter(t):
			return
		case l.placed.Load() != p:
			continue // to a lane that has ended
		default:
			l.release(t)
		}
		l.evaluate(t)
		return
	}
}

// wait parks t, which is busy, in a lane, and reports whether there was room.
func (l *Limiter) wait(t *track, ln *lane) bool {
	t.mu.Lock()
	t.parked = true
	t.mu.Unlock()
	return ln.park(t)
}

// release says that t is in no lane.
func (l *Limiter) release(t *track) {
	t.mu.Lock()
	t.busy, t.parked = false, false
	if t.forgotten {
		l.reckon(t, dropShard, t.dropUnsent())
	}
	t.mu.Unlock()
}

// work does what there is to do for the keys of a lane, until it is closed and empty.
func (l *Limiter) work(ln *lane) {
	var j job
	for {
		t, ok := ln.take()
		if !ok {
			return
		}
		j = l.serve(ln, t, j)
	}
}

// serve does all work of t. It returns j for its memory.
func (l *Limiter) serve(ln *lane, t *track, j job) job {
	for {
		if l.late.Load() {
			l.release(t)
			return j
		}
		var any bool
		p, owner := l.owner(t)
		if owner != ln {
			switch {
			case owner != nil && owner.enter(t):
				return j
			case owner == nil || !owner.hasEnded():
				l.send(t)
				return j
			case l.placed.Load() != p:
				continue
			}
			ln = owner // at the end its workers may have gone already
		}
		t.mu.Lock()
		j, any = t.next(l.o.Now(), l.senders(), j)
		t.busy, t.parked = any, false
		lost := uint64(0)
		if !any && t.forgotten {
			lost = t.dropUnsent() // there was no room for it in its sub-window
		}
		l.reckon(t, dropShard, lost)
		t.mu.Unlock()
		if !any {
			return j
		}
		done := l.perform(ln.shard, t, j)
		l.watch(ln)
		if !done {
			t.mu.Lock()
			t.parked = true
			t.mu.Unlock()
		}
		l.evaluate(t)
		if len(j.formers) > 0 {
			// Last, since it may take as long as shards do that are about to go.
			for i := range j.formers {
				l.readFormer(t, &j.formers[i])
			}
			l.evaluate(t)
		}
		if done || l.placed.Load() != p {
			continue // perhaps elsewhere
		}
		switch {
		case ln.park(t):
			if l.placed.Load() != p {
				ln.wakeAll() // the shard may have gone out just now
			}
		case l.placed.Load() != p:
			continue // or have left, with its lane
		default:
			l.release(t)
		}
		return j
	}
}

// perform does j for t at a shard. It reports false if some of it is to be tried again.
func (l *Limiter) perform(shard Shard, t *track, j job) (done bool) {
	done = true
	for _, s := range j.sends {
		number, err := shard.Count(l.o.Secret.CounterKey(t.key, s.limit, s.number), s.delta, counter.TTL(s.limit.Period))
		t.mu.Lock()
		switch {
		case err == nil:
			l.fell(t.counted(s, number))
		case errors.Is(err, counter.ErrNotSent):
			t.unsent(s)
			done = false
		default:
			t.unknown(s)
		}
		t.mu.Unlock()
	}
	if len(j.reads) > 0 || j.record {
		done = l.read(shard, t, j) && done
	}
	if j.store {
		done = l.store(shard, t) && done
	}
	return done
}

// fell counts a number that fell since it was last known.
func (l *Limiter) fell(it bool) {
	if it {
		l.metrics.fell.Inc()
	}
}

// read reads counters and the record, in one round trip.
func (l *Limiter) read(shard Shard, t *track, j job) (done bool) {
	keys := make([]string, 0, len(j.reads)+1)
	for _, s := range j.reads {
		keys = append(keys, l.o.Secret.CounterKey(t.key, s.limit, s.number))
	}
	if j.record {
		keys = append(keys, l.o.Secret.RecordKey(t.key))
	}
	now := l.o.Now() // before the round trip: what comes later is read once more
	values, err := shard.Numbers(keys...)
	if err != nil {
		return false
	}
	// Until then other nodes may still add to the window before.
	catchUp := 2*l.o.Interval + max(0, l.o.Ahead())
	t.mu.Lock()
	for i, s := range j.reads {
		// What is no number is as good as none: nothing is known from it.
		value, _ := counter.ParseNumber(values[keys[i]])
		again, fell := t.read(s, value, now, catchUp)
		if l.fell(fell); !again.IsZero() {
			l.later.add(t, again)
		}
	}
	if j.record {
		t.readRecord = false
	}
	t.mu.Unlock()
	if j.record {
		l.learnStored(values[keys[len(keys)-1]], t.key)
	}
	return true
}

// readFormer reads what a former owner has of t, counters and record, in one round trip.
// Where it does not answer, what is known from it stays. A record follows to the owner.
func (l *Limiter) readFormer(t *track, f *former) {
	t.mu.Lock()
	reads := t.formerReads(f)
	t.mu.Unlock()
	keys := make([]string, 0, len(reads)+1)
	for _, s := range reads {
		keys = append(keys, l.o.Secret.CounterKey(t.key, s.limit, s.number))
	}
	keys = append(keys, l.o.Secret.RecordKey(t.key))
	now := l.o.Now() // before the round trip
	values, err := f.lane.shard.Numbers(keys...)
	l.watch(f.lane)
	record := false
	if err == nil {
		_, record = l.learnStored(values[keys[len(reads)]], t.key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.triedFormer(f, now, err == nil)
	if err != nil {
		return
	}
	for i, s := range reads {
		value, _ := counter.ParseNumber(values[keys[i]])
		l.fell(t.readFormer(f, s, value))
	}
	t.store = t.store || record
}

// learnStored merges a record as it is stored. What is none is ignored: it will be
// overwritten.
func (l *Limiter) learnStored(value []byte, key counter.Key) (mitigation.Record, bool) {
	now := l.o.Now()
	r, err := mitigation.ParseStored(value, key, now)
	if err != nil {
		return r, false
	}
	l.Learn(r, "shard", now)
	return r, true
}

// store writes this node's record of t beside the counters, unless a greater one is there.
func (l *Limiter) store(shard Shard, t *track) (done bool) {
	err := shard.Update(l.o.Secret.RecordKey(t.key), func(old []byte) ([]byte, int32) {
		stored, ok := l.learnStored(old, t.key)
		now := l.o.Now()
		mine, held := l.o.Table.Held(t.key, now)
		if !held || ok && !mine.Wins(stored) {
			return nil, 0
		}
		return mine.AppendStored(nil), int32(mine.Deadline.Sub(now)/time.Second) + 1
	})
	if err != nil {
		return false
	}
	t.mu.Lock()
	t.store = false
	t.mu.Unlock()
	return true
}

// evaluate mitigates t if a limit is exceeded.
func (l *Limiter) evaluate(t *track) {
	now := l.o.Now()
	rules := l.rules.Load()
	t.mu.Lock()
	current := rules.set.Current(t.rule)
	if current == nil { // it was removed since
		t.mu.Unlock()
		return
	}
	t.setRule(current, now, rules.outdated[current])
	f := t.evaluate(now)
	r, sample, parked := t.rule, t.sample, t.parked
	l.reckon(t, dropShard, 0)
	t.mu.Unlock()
	l.near.set(t.key, f.near)
	if f.over && r.OnFailure == rule.FailOpen && (parked || l.unavailable(t.key)) {
		return // it is evaluated again when the shard has answered
	}
	if f.over && l.mitigate(t.key, r, f, sample, now) {
		t.mu.Lock()
		t.store = true
		t.mu.Unlock()
	}
}

// mitigate starts the mitigation of key, or prolongs it: it ends at the later of its
// start + the rule's timeout and the moment when every limit is back at its threshold. It
// reports whether that is news, and passes it on.
func (l *Limiter) mitigate(key counter.Key, r *rule.Rule, f finding, sample mitigation.Sample, now time.Time) bool {
	sample.Rule = r.ID
	record, changed := l.merge(key, r.MitigationTimeout, f, sample, now)
	if !changed {
		return false
	}
	if l.o.Publish != nil {
		l.o.Publish(record)
	}
	if record.Sample != nil {
		l.metrics.startedBy(r).Inc()
		l.logStart(record, r)
	}
	return true
}

// merge makes the record of a mitigation and merges it into the table. It has the sample
// if the mitigation starts with it.
func (l *Limiter) merge(key counter.Key, timeout time.Duration, f finding, sample mitigation.Sample, now time.Time) (record mitigation.Record, changed bool) {
	l.merging.Lock()
	defer l.merging.Unlock()
	record = mitigation.Record{Key: key, Start: now.UnixMicro(), Node: l.o.Node, Why: f.why}
	last, known := l.o.Table.Last(key)
	prolongs := known && !last.Lifted && now.Before(last.Deadline)
	record.Generation = last.Generation
	if prolongs {
		// Its start may be by another node's clock: what is added is a time, not an end.
		more := (f.back.Sub(last.Deadline) + time.Microsecond - 1).Truncate(time.Microsecond)
		if more <= 0 {
			return last, false
		}
		record.Start = last.Start
		record.Lifetime = min(last.Lifetime+more, mitigation.MaxLifetime)
		record.Deadline = last.Deadline.Add(record.Lifetime - last.Lifetime)
		return record, l.o.Table.Merge(record, now)
	}
	record.Sample = &sample
	record.Lifetime = min(max(timeout, f.back.Sub(now).Truncate(time.Microsecond)), mitigation.MaxLifetime)
	record.Deadline = now.Add(record.Lifetime)
	// The mitigation before may end later by clocks that were set since.
	if known && (last.Lifted || record.End() <= last.End()) {
		record.Generation++
	}
	return record, l.o.Table.Merge(record, now)
}

// logStart writes the line of a mitigation that starts.
func (l *Limiter) logStart(record mitigation.Record, r *rule.Rule) {
	if !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return // before the arithmetic is written
	}
	attrs := append([]any{"rule", r.ID, "key", record.Key, "action", r.Action,
		"for", record.Lifetime.Round(time.Millisecond), "why", record.Why.String(),
		"period", time.Duration(record.Why.Limit.Period) * time.Microsecond}, l.sampleAttrs(record)...)
	l.o.Logger.Info("mitigation started", attrs...)
}

// ended writes the line of a mitigation that has ended, on the node where it started.
func (l *Limiter) ended(record mitigation.Record) {
	if record.Sample == nil || !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := append([]any{"rule", record.Sample.Rule, "key", record.Key, "after", record.Lifetime.Round(time.Millisecond),
		"why", record.Why.String()}, l.sampleAttrs(record)...)
	l.o.Logger.Info("mitigation ended", attrs...)
}

func (l *Limiter) sampleAttrs(record mitigation.Record) []any {
	if s := record.Sample; l.o.LogClients && s != nil {
		return slices.Clip([]any{"client", s.Client, "method", s.Method, "host", s.Host, "path", s.Path})
	}
	return nil
}
