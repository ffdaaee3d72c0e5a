package async

import (
	"container/heap"
	"context"
	"encoding/binary"
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
	rules   atomic.Pointer[rules]
	queue   *Queue[arrival, offered]
	near    nearSet
	tracks  [parts]part
	placed  atomic.Pointer[placement]
	metrics *metrics
	started func(*rule.Rule)
	counted func(*rule.Rule, uint64)
	wake    chan struct{} // capacity 1
	calls   chan func()   // functions for the loop to run

	placing  sync.Mutex // held by SetShards and SetOut
	changing sync.Mutex // held while a record is made; guards changes
	changes  []change

	// The loop owns the fields below.
	seen      *placement // as move last saw it
	unowned   lane       // keys without an owner because all shards are out
	alone     bool       // no shard is available
	asking    []*lane
	later     later
	lifting   time.Time // when to store lifts again; zero if all are stored
	refreshed time.Time // when active records were last read
	log       mitigationLog
	lost      losses
	spare     []*batch
	exchange  func(*batch) // starts to send a batch to its shard
	probes    bool         // turn schedules probes of shards that are down
	ending    bool
}

// rules is a set of rules, with the former layouts of their limits.
type rules struct {
	set      *rule.Set
	outdated map[*rule.Rule][]planned
	plans    map[*rule.Rule]*plan       // of rules that have keys; owned by the loop
	packed   [counter.MaxFields + 1]int // number of limits, by sub-windows
}

// SubWindows returns how many limits have sub-windows, and how many of these each node counts alone because the
// PoP has too many nodes for them.
func (c *Loop) SubWindows() (limits, alone int) {
	rules, nodes := c.rules.Load(), c.o.Nodes()
	for fields, n := range rules.packed {
		limits += n
		if layout, _ := counter.LayoutOf(fields); n > 0 && nodes > layout.MaxNodes() {
			alone += n
		}
	}
	return limits, alone
}

// New returns a Loop, which counts nothing until Run is called. The loop calls started for each
// mitigation that starts, with the rule that was exceeded, and counted with each rule and how much it counts.
func New(o Options, started func(*rule.Rule), counted func(*rule.Rule, uint64)) (c *Loop, err error) {
	o = o.withDefaults()
	c = &Loop{o: o, started: started, counted: counted, wake: make(chan struct{}, 1), calls: make(chan func()), refreshed: o.Now()}
	c.metrics = newMetrics(o.Registerer, c)
	c.log = mitigationLog{Logger: o.Logger, clients: o.LogClients, unlogged: c.metrics.unlogged, flaps: map[counter.Key]*flap{}}
	c.queue = NewQueue(QueueOptions[arrival, offered]{
		Hash: func(a arrival) uint64 { return binary.LittleEndian.Uint64(a.key[:]) },
		Merge: func(queued *offered, more offered) {
			queued.rule, queued.sample = more.rule, more.sample
			queued.n += min(more.n, ^queued.n)
			queued.clients.Add(more.clients)
		},
		Size:       func(o *offered) uint64 { return o.n },
		Capacity:   o.Queue,
		Interval:   o.Interval,
		Registerer: o.Registerer,
	})
	c.seen = &placement{ring: new(ring.Ring[*lane])}
	c.placed.Store(c.seen)
	if err := c.SetShards(o.Shards); err != nil {
		return nil, err
	}
	o.Table.OnEvict(c.readAgain)
	c.SetRules(o.Rules)
	return c, nil
}

// SetRules replaces the rules. Rules that keep their ID and characteristics keep their counts.
// A limit whose sub-windows change gets new counters; the old ones still count until they have
// left the period. All nodes of a PoP must load the same rules within 5 s. SetRules must not be
// called concurrently with itself.
func (c *Loop) SetRules(set *rule.Set) {
	c.rules.Store(&rules{
		set: set, packed: set.PackedLimits(), plans: map[*rule.Rule]*plan{},
		outdated: c.rules.Load().outdatedBy(set, c.o.Now()),
	})
}

// readAgain is called when the table evicts key's record. It causes the record to be read with the
// key's next count.
func (c *Loop) readAgain(key counter.Key) {
	part := c.part(key)
	part.mu.Lock()
	defer part.mu.Unlock()
	if t := part.find(key); t != nil {
		t.readRecord.Store(true)
	}
}

// wakeUp makes the loop look for work.
func (c *Loop) wakeUp() {
	select {
	case c.wake <- struct{}{}:
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
	timer, flaps := time.NewTimer(0), time.NewTicker(flapPause/2)
	defer timer.Stop()
	defer flaps.Stop()
	var late <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-done:
			done, c.ending, c.probes = nil, true, false
			c.queue.Flush(c.flush)
			late = time.After(c.o.Drain)
		case <-late:
			c.exchange = nil
		case <-c.queue.Wake():
		case <-c.wake:
		case call := <-c.calls:
			call()
		case b := <-answers:
			flying--
			c.answered(b)
		case <-flaps.C:
			c.log.report(c.o.Now())
		case <-timer.C:
		}
		flushed := c.queue.Poll(time.Now(), c.flush)
		next := c.turn()
		if c.ending && flying == 0 {
			break
		}
		wait := time.Duration(1<<63 - 1)
		if !flushed.IsZero() {
			wait = time.Until(flushed)
		}
		if !next.IsZero() {
			wait = min(wait, next.Sub(c.o.Now()))
		}
		timer.Reset(max(0, wait))
	}
	for i := range c.tracks {
		for t := range c.tracks[i].all {
			t.loseAll(dropShard)
		}
	}
	c.metrics.lose(&c.lost)
}

// Flush counts the requests offered since the last call, in the caller's goroutine. Flush and
// Step replace Run for callers that advance time themselves, such as a simulation with its own
// Options.Now and shards that answer immediately. They run the same code, without goroutines or
// timers. They must not run concurrently, with each other or with Run. SetOut may be called
// between them, SetShards must not.
func (c *Loop) Flush() {
	c.inline()
	c.queue.Flush(c.flush)
	c.turn()
}

// Step does the reads that are due and retries operations that shards did not accept: see Flush. It
// returns when to call it next, or the zero time if no work is scheduled.
func (c *Loop) Step() (next time.Time) {
	c.inline()
	return c.turn()
}

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
	now := c.o.Now()
	c.move(now)
	for busy := true; busy; busy = c.pump(now) {
		c.takeChanges(now)
		next = c.keepRecords(now)
		for len(c.later) > 0 && (c.ending || !now.Before(c.later[0].until)) {
			key := heap.Pop(&c.later).(wait).key
			if t := c.part(key).find(key); t != nil {
				t.held = false
				c.send(t, now)
			}
		}
	}
	next = earlier(next, c.o.Table.Expire(now, func(r mitigation.Record) { c.log.ended(r, now) }))
	c.metrics.lose(&c.lost)
	c.noteBacklog()
	if len(c.later) > 0 {
		next = earlier(next, c.later[0].until)
	}
	for _, ln := range c.seen.all {
		// A shard that is down is probed once the batches in flight are answered or have failed.
		if down := ln.shard.Down(); down && c.probes && ln.flying < inFlight || !down && ln.waiting > 0 && now.Before(ln.retry) {
			next = earlier(next, ln.retry)
		}
	}
	return next
}

// earlier returns the earlier of two times; zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// flush adds the queued items to the tracks of their keys. It evaluates each track immediately, by what
// the node knows for certain, whatever its shard does.
func (c *Loop) flush(items []Item[arrival, offered]) {
	now := c.o.Now()
	c.move(now)
	rules := c.rules.Load()
	for i := range items {
		what, offered := &items[i].Key, &items[i].Value
		// The rules may have changed since the request was matched.
		r := rules.set.Current(offered.rule)
		if r == nil {
			continue
		}
		t := c.track(what.key)
		c.setPlan(t, r, rules, now)
		c.catchUp(t)
		if what.generation < t.generation { // the request arrived before a lift
			c.lost[dropLifted] += offered.n * uint64(len(r.Limits))
			continue
		}
		t.advance(now)
		c.counted(r.Base(), offered.n)
		t.add(offered.n, time.UnixMilli(what.tick))
		if t.since == 0 {
			t.since = offered.at
		}
		t.keep(&offered.sample)
		t.see(offered.clients)
		if c.evaluate(t, offered.n, now); !c.holds(t, now) {
			c.send(t, now)
		}
	}
}

// catchUp resets the counts of t if its mitigation was lifted, or if the table has forgotten a lift: requests are
// then of an earlier generation again.
func (c *Loop) catchUp(t *track) {
	if generation := c.o.Table.Generation(t.key); generation != t.generation {
		part := c.part(t.key)
		part.mu.Lock()
		defer part.mu.Unlock()
		t.lift(generation)
	}
}

// Maximum sizes of a sample, in bytes. The path is given what method and host leave.
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

// evaluate starts the mitigation of t if a limit is exceeded. n is the number of requests since
// the last flush.
func (c *Loop) evaluate(t *track, n uint64, now time.Time) {
	rules := c.rules.Load()
	if t.plan == nil { // only its record matters
		return
	}
	r := rules.set.Current(t.plan.rule)
	if r == nil { // the rule was removed
		return
	}
	c.setPlan(t, r, rules, now)
	c.catchUp(t)
	was := t.near
	f, over := t.evaluate(now, n, &c.part(t.key).mu)
	if held, ok := c.o.Table.Held(t.key, now); t.near && r.Action == rule.Shed && ok && !held.Lifted {
		t.near = false // what its requests need to know is the estimate, not the moment when it exceeds the threshold
	}
	switch {
	case t.near:
		for i := range r.Limits {
			c.near.set(t.key, now.Add(2*r.Limits[i].Period))
		}
	case was:
		c.near.clear(t.key)
	}
	if !over || r.OnFailure == rule.FailOpen && c.Unavailable(t.key) || r.MinClients > 1 && t.clients() < r.MinClients {
		return // it is evaluated again when the shard has answered, or with its next count
	}
	sample := t.sample()
	c.mitigate(t.key, r, f, &sample, math.MaxInt, now)
}
