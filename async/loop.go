package async

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/ring"
	"github.com/edgelimit/edge/rule"
)

// A Loop counts offered requests. One goroutine, [Loop.Run], owns the state of keys; it never
// waits for the network. The methods may be called concurrently, except Run, Flush and Step.
type Loop struct {
	o       Options
	rules   atomic.Pointer[rule.Set]
	queue   *queue
	near    nearSet
	tracks  [parts]part
	placed  atomic.Pointer[placement]
	metrics *metrics
	started func(*rule.Rule)         // see New
	counted func(*rule.Rule, uint64) // see New
	wake    chan struct{}            // capacity 1
	calls   chan func()              // functions for the loop to run

	placing  sync.Mutex // held by SetShards and SetOut
	changing sync.Mutex // held while a record is made; guards changes
	changes  []change

	// The loop owns the fields below.
	seen       *placement    // the placement that move saw last
	former     *placement    // the one before
	moved      time.Time     // when seen replaced former
	unowned    lane          // keys without an owner because all shards are out
	refreshed  time.Time     // when Options.Refresh last made the loop read the records
	uncompared []counter.Key // keys whose records must be compared with those of the shards
	comparing  time.Time     // when to compare the next of them
	log        mitigationLog
	spare      []*batch     // for reuse
	exchange   func(*batch) // starts to send a batch to its shard
	probes     bool         // turn schedules probes of shards that are down
	ending     bool         // Run drains the queue and returns
}

// SubWindows returns how many limits have sub-windows, and how many of these each node counts alone because the
// PoP has too many nodes for them.
func (c *Loop) SubWindows() (limits, alone int) {
	nodes := c.o.Nodes()
	for _, r := range c.rules.Load().Rules() {
		for _, l := range r.Limits {
			if l.SubWindows > 1 {
				limits++
				if nodes > l.Counted().Layout.MaxNodes() {
					alone++
				}
			}
		}
	}
	return limits, alone
}

// New returns a Loop, which counts nothing until Run is called. The loop calls started for each mitigation that starts,
// with the exceeded rule, and counted for each queued item, with its rule and how much that counts.
func New(o Options, started func(*rule.Rule), counted func(*rule.Rule, uint64)) (c *Loop, err error) {
	o = o.withDefaults()
	c = &Loop{o: o, started: started, counted: counted, wake: make(chan struct{}, 1), calls: make(chan func()),
		refreshed: o.Now()}
	c.metrics = newMetrics(o.Registerer, c)
	c.log = mitigationLog{Logger: o.Logger, clients: o.LogClients, unlogged: c.metrics.unlogged,
		watched: map[counter.Key]startCount{}}
	c.queue = newQueue(o.Queue, o.Interval, o.Registerer)
	c.seen = &placement{ring: new(ring.Ring[*lane]), lanes: []*lane{&c.unowned}}
	c.placed.Store(c.seen)
	if err := c.SetShards(o.Shards); err != nil {
		return nil, err
	}
	c.seen = c.placed.Load()
	c.former = c.seen
	c.SetRules(o.Rules)
	return c, nil
}

// SetRules replaces the rules. Rules that keep their ID and characteristics keep the counts of limits that keep their
// period and sub-windows. Other limits are new: they get new counters.
func (c *Loop) SetRules(set *rule.Set) { c.rules.Store(set) }

// merge merges a record into the table, and reports whether the table changed. If that evicts another record, the next
// count of that record's key reads it again.
func (c *Loop) merge(r mitigation.Record, now time.Time) (changed bool) {
	changed, evicted := c.o.Table.Merge(r, now)
	if evicted != nil {
		part := c.lock(*evicted)
		defer part.mu.Unlock()
		if t := part.find(*evicted); t != nil {
			t.readRecord.Store(true)
		}
	}
	return changed
}

// notify wakes the loop, which receives from a channel of capacity 1.
func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run counts offered requests and ends mitigations at their deadlines, until ctx is done. Then it
// drains the queue, for at most Options.Drain, and returns once all its goroutines have.
func (c *Loop) Run(ctx context.Context) {
	answers := make(chan *batch, 64)
	flying := 0
	c.exchange = func(b *batch) {
		flying++
		go func() { // received below
			b.err = b.lane.shard.Exchange(&b.Batch)
			answers <- b
		}()
	}
	c.probes = true
	timer := time.NewTimer(0)
	defer timer.Stop()
	fires := time.Now() // when timer fires; zero if it has fired
	var late <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-done:
			done, c.ending, c.probes = nil, true, false
			c.queue.flush(c.flush)
			late = time.After(c.o.Drain)
		case <-late:
			c.exchange = nil
		case <-c.queue.wake:
		case <-c.wake:
		case call := <-c.calls:
			call()
		case b := <-answers:
			flying--
			c.answered(b)
		case <-timer.C:
			fires = time.Time{}
		}
		now := time.Now()
		flushed := c.queue.poll(now, c.flush)
		next := c.turn()
		if c.ending && flying == 0 {
			break
		}
		if !next.IsZero() {
			next = now.Add(next.Sub(c.o.Now()))
		}
		// A timer that fires too early costs a turn. One that is reset before it fires costs more: when the new time has
		// come, Go's scheduler goes through the timers of all connections (bench/http: pass, 128 bytes,
		// 1,000 connections).
		if next = earlier(next, flushed); !next.IsZero() && (fires.IsZero() || next.Before(fires)) {
			fires = next
			timer.Reset(time.Until(next))
		}
	}
	for i := range c.tracks {
		part := &c.tracks[i]
		part.mu.Lock()
		for t := range part.all {
			c.loseAll(t, dropShard)
		}
		part.mu.Unlock()
	}
}

// Flush counts the requests offered since the last call, in the caller's goroutine. Flush and
// Step replace Run for callers that advance time themselves, such as a simulation with its own
// Options.Now and shards that answer immediately. They run the same code, without goroutines or
// timers. They must not run concurrently, with each other or with Run. SetOut may be called
// between them, SetShards must not. Flush returns what Step would return.
func (c *Loop) Flush() (next time.Time) {
	c.inline()
	c.queue.flush(c.flush)
	return c.turn()
}

// Step does the reads that are due and retries operations that shards did not accept: see Flush. It returns when to
// call Step next, or the zero time if no work is scheduled.
func (c *Loop) Step() (next time.Time) {
	c.inline()
	return c.turn()
}

// Woken reports whether Step has something to do before the time that the last Step or Flush returned.
func (c *Loop) Woken() bool { return len(c.wake) > 0 }

// inline makes batches run in the caller's goroutine.
func (c *Loop) inline() {
	if c.exchange == nil {
		c.exchange = func(b *batch) {
			b.err = b.lane.shard.Exchange(&b.Batch)
			c.answered(b)
		}
	}
}

// turn does the work that is due, and returns when more will be due.
func (c *Loop) turn() (next time.Time) {
	select {
	case <-c.wake:
	default:
	}
	now := c.o.Now()
	c.move(now)
	for busy := true; busy; busy = c.pump(now) {
		c.takeChanges(now)
		next = earlier(c.compareRecords(now), c.release(now))
	}
	next = earlier(next, c.o.Table.Expire(now, func(r mitigation.Record) { c.log.ended(&r, now) }))
	c.noteBacklog()
	for _, ln := range c.seen.all {
		// A shard that is down is probed once the batches in flight are answered or have failed.
		down := ln.shard.Down()
		if down && c.probes && ln.flying < atATime || !down && ln.waiting.Load() > 0 && now.Before(ln.retry) {
			next = earlier(next, ln.retry)
		}
	}
	return next
}

// lose counts n dropped requests, once for each limit.
func (m *metrics) lose(cause int, n uint64) {
	if n > 0 {
		m.dropped[cause].Add(float64(n))
	}
}

// noteBacklog records when the oldest requests that wait for each shard arrived.
func (c *Loop) noteBacklog() {
	for _, ln := range c.seen.lanes {
		since := int64(0)
		for _, l := range ln.queues[:held] {
			if t := l.head; t != nil && t.since != 0 && (since == 0 || t.since < since) {
				since = t.since
			}
		}
		ln.oldest.Store(since)
	}
}

// earlier returns the earlier of two times; zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// flush adds the queued items to the tracks of their keys. It evaluates each track immediately, by the counts that the
// node is sure of, whatever its shard does.
func (c *Loop) flush(items []item) {
	now := c.o.Now()
	c.move(now)
	rules := c.rules.Load()
	for i := range items {
		item := &items[i]
		// The rules may have changed since the request was matched.
		r := rules.Current(item.rule)
		if r == nil {
			continue
		}
		t := c.track(item.key)
		c.update(t, r, now)
		if item.generation < t.generation { // the request arrived before a lift
			c.metrics.lose(dropLifted, item.n*uint64(len(r.Limits)))
			continue
		}
		c.counted(r.Base(), item.n)
		c.add(t, item)
		t.burst = uint16(min(item.n, math.MaxUint16))
		if t.since == 0 {
			t.since = item.at
		}
		t.keep(&item.sample)
		if item.clients != (ClientSet{}) {
			t.rare().clients[0].Add(item.clients)
		}
		c.evaluate(t, t.since, now)
		switch holds := c.holds(t, now); {
		case !holds:
			c.send(t)
		case t.place == nowhere: // else its counts already wait for a batch
			c.lane(t.key).move(t, held)
		}
	}
}

// Maximum sizes of a sample, in bytes. The path gets the room that method and host leave.
const (
	maxSample = 128
	maxMethod = 16
	maxHost   = 64
)

// cut truncates s.
func cut(s mitigation.Sample) mitigation.Sample {
	s.Method = s.Method[:min(len(s.Method), maxMethod)]
	s.Host = s.Host[:min(len(s.Host), maxHost)]
	s.Path = s.Path[:min(len(s.Path), maxSample-len(s.Method)-len(s.Host))]
	return s
}

// Copy returns a truncated copy of s that shares no memory with it, because the strings of s may be
// part of a reused buffer or of a whole request. It allocates once.
func Copy(s mitigation.Sample) mitigation.Sample {
	s = cut(s)
	text := strings.Join([]string{s.Method, s.Host, s.Path}, "")
	s.Method, text = text[:len(s.Method)], text[len(s.Method):]
	s.Host, s.Path = text[:len(s.Host)], text[len(s.Host):]
	return s
}
