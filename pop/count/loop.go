package count

import (
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Loop. Rules, Table, Exceeded and Learn are required; the zero value of
// every other field is usable.
type Options struct {
	// Secret derives the items of counters and records. All nodes of a PoP share it.
	Secret counter.Secret

	// Rules is the initial set; SetRules replaces it.
	Rules *rule.Set

	// Table holds the mitigations. Its records are stored beside the counters.
	Table *mitigation.Table

	// Exceeded is called when the counts of a key exceed a limit of a rule. It reports whether
	// it made or prolonged a record. It may be called on the request path.
	Exceeded func(key counter.Key, r *rule.Rule, f Finding, sample *mitigation.Sample, now time.Time) (mitigation.Record, bool)

	// Started is called by the loop with each record that Exceeded returned.
	Started func(mitigation.Record, *rule.Rule)

	// Learn merges a record that was read from a shard.
	Learn func(mitigation.Record, time.Time)

	// Shards own the counters; SetShards replaces them. If empty, the node counts alone.
	Shards []Shard

	// Settle, Interval, Queue, TrackedKeys, Drain, Nodes, Now, Ahead, Refresh: see
	// limit.Options. Here they have no defaults.
	Settle      time.Duration
	Interval    time.Duration
	Queue       int
	TrackedKeys int
	Drain       time.Duration
	Nodes       func() int
	Now         func() time.Time
	Ahead       func() time.Duration
	Refresh     time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Loop counts offered requests. One goroutine, [Loop.Run], owns the state of keys; it never
// waits for the network. The methods may be called concurrently, except Run, Flush and Step.
type Loop struct {
	o       Options
	rules   atomic.Pointer[rules]
	queue   *async.Queue[arrival, offered]
	near    nearSet
	tracks  [trackParts]*lru.Cache[counter.Key, *track] // only the loop adds
	placed  atomic.Pointer[placement]
	alone   atomic.Bool // no shard is available
	metrics *metrics
	wake    chan struct{} // capacity 1

	members sync.Mutex // held by SetShards and SetOut
	loading sync.Mutex // held by SetRules

	shared sync.Mutex // guards begun and lifted
	begun  []begun
	lifted []counter.Key

	// The loop owns the fields below.
	seen    *placement
	nowhere lane // keys that have no shard because all are out
	asking  []*lane
	later   later
	lifts   map[counter.Key]*lane // where each lift's record is stored; nil if not known
	lifting time.Time             // when to check lifts again; zero: all are stored
	renewed time.Time             // when active records were last read
	lost    losses
	spare   []*batch
	starts  func(*batch) // starts the exchange of a batch
	slots   []slot
	sends   []send
	ending  bool
}

// trackParts is how many locks the tracks share.
const trackParts = 64

// rules is a set of rules, and the layouts that their limits had before.
type rules struct {
	set      *rule.Set
	outdated map[*rule.Rule][]outdated
	packed   [counter.MaxFields + 1]int // number of limits, by sub-windows
}

// SubWindows returns how many limits have sub-windows, and how many of these each node counts
// alone because the PoP has too many nodes for their layout.
func (c *Loop) SubWindows() (limits, alone int) {
	rules, nodes := c.rules.Load(), c.o.Nodes()
	for fields, n := range rules.packed {
		if layout, _ := counter.LayoutOf(fields); n > 0 {
			limits += n
			if nodes > layout.MostNodes() {
				alone += n
			}
		}
	}
	return limits, alone
}

// New returns a Loop. It counts nothing before Run is called.
func New(o Options) (c *Loop, err error) {
	c = &Loop{o: o, wake: make(chan struct{}, 1), begun: make([]begun, 0, maxBegun), lifts: map[counter.Key]*lane{}, renewed: o.Now()}
	c.metrics = newMetrics(o.Registerer, c)
	for i := range c.tracks {
		if c.tracks[i], err = lru.NewWithEvict((o.TrackedKeys+trackParts-1)/trackParts, c.forgotten); err != nil {
			return nil, err
		}
	}
	c.queue, err = async.New(async.Options[arrival, offered]{
		Hash: func(a arrival) uint64 { return binary.LittleEndian.Uint64(a.key[:]) },
		Merge: func(queued *offered, more offered) {
			queued.rule, queued.sample = more.rule, more.sample
			queued.n += more.n
		},
		Capacity:   o.Queue,
		Interval:   o.Interval,
		Registerer: o.Registerer,
	})
	if err != nil {
		return nil, err
	}
	if err := c.SetShards(o.Shards); err != nil {
		return nil, err
	}
	o.Table.OnEvict(c.readAgain)
	c.SetRules(o.Rules)
	return c, nil
}

// SetRules replaces the rules. Rules that keep their ID and characteristics keep their counts.
// A limit whose sub-windows change gets new counters; the old ones still count until they have
// left the period. All nodes of a PoP must load the same rules within 5 s.
func (c *Loop) SetRules(set *rule.Set) {
	c.loading.Lock()
	defer c.loading.Unlock()
	c.rules.Store(&rules{set: set, packed: set.PackedLimits(), outdated: c.rules.Load().outdatedBy(set, c.o.Now())})
}

// readAgain is called when the table evicts key's record. It has the record read with the key's
// next count.
func (c *Loop) readAgain(key counter.Key) {
	if t := c.peek(key); t != nil {
		t.readRecord.Store(true)
	}
}

// peek returns the track of a key, nil if there is none.
func (c *Loop) peek(key counter.Key) *track {
	t, _ := c.tracks[key[0]%trackParts].Peek(key)
	return t
}

// wakeUp makes the loop look for work.
func (c *Loop) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run counts offered requests until ctx is done. Then it drains the queue, for at most
// Options.Drain, and returns once all its goroutines have.
func (c *Loop) Run(ctx context.Context) {
	answers := make(chan *batch, 64)
	flying := 0
	c.starts = func(b *batch) {
		flying++
		go func() { // received below
			b.err = b.lane.shard.Exchange(&b.Batch)
			answers <- b
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var late <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-done:
			done, c.ending = nil, true
			c.queue.Flush(c.flush)
			late = time.After(c.o.Drain)
		case <-late:
			c.starts = nil
		case <-c.queue.Wake():
		case <-c.wake:
		case b := <-answers:
			flying--
			c.answered(b)
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
		if probe := c.nextProbe(); !probe.IsZero() && !c.ending {
			wait = min(wait, probe.Sub(c.o.Now()))
		}
		timer.Reset(max(0, wait))
	}
	for _, part := range c.tracks {
		for _, t := range part.Values() {
			t.loseAll(dropShard)
		}
	}
	c.metrics.lose(&c.lost)
}

// Flush counts the requests offered since the last call, in the caller's goroutine. Flush and
// Step replace Run for callers that advance time themselves, such as a simulation with its own
// Options.Now and shards that answer at once. They run the same code, without goroutines or
// timers. They must not run concurrently, with each other or with Run. SetOut may be called
// between them, SetShards must not.
func (c *Loop) Flush() {
	c.inline()
	c.queue.Flush(c.flush)
	c.turn()
}

// Step does the reads that are due and retries what shards did not accept: see Flush. It returns
// when to call it next, zero if no work is scheduled.
func (c *Loop) Step() (next time.Time) {
	c.inline()
	return c.turn()
}

// inline makes batches run in the caller's goroutine.
func (c *Loop) inline() {
	if c.starts == nil {
		c.starts = func(b *batch) {
			b.err = b.lane.shard.Exchange(&b.Batch)
			c.answered(b)
		}
	}
}

// turn does the work that is due, and returns when more will be due.
func (c *Loop) turn() (next time.Time) {
	now := c.o.Now()
	c.takeBegun(now)
	c.move(now)
	next = c.keepRecords(now)
	for {
		for t := c.later.due(now); t != nil; t = c.later.due(now) {
			if !t.forgotten {
				c.send(t, now)
			}
		}
		if !c.pump(now) {
			break
		}
	}
	c.metrics.lose(&c.lost)
	c.metrics.note(c)
	next = sooner(next, c.later.next())
	for _, ln := range c.lanes() {
		if ln.waiting() > 0 && now.Before(ln.retry) && !ln.shard.Down() {
			next = sooner(next, ln.retry)
		}
	}
	return next
}

// sooner returns the earlier of two times; zero stands for never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nextProbe returns when to probe a shard that is down, zero if all are up. A shard that still
// owes an answer is probed after it.
func (c *Loop) nextProbe() (next time.Time) {
	for _, ln := range c.lanes() {
		if ln.shard.Down() && ln.flying < inFlight {
			next = sooner(next, ln.retry)
		}
	}
	return next
}

// flush adds the items of the queue to the tracks of their keys. Each track is evaluated at once,
// by what the node knows for certain, whatever its shard does.
func (c *Loop) flush(items []async.Item[arrival, offered]) {
	now := c.o.Now()
	rules := c.rules.Load()
	for i := range items {
		what, offered := &items[i].Key, &items[i].Value
		// The rules may have changed since the request was matched.
		r := rules.set.Current(offered.rule)
		if r == nil {
			continue
		}
		t := c.track(what.key, r, now, rules.outdated[r])
		t.setRule(r, now, rules.outdated[r])
		c.catchUp(t)
		if what.generation < t.generation { // the request came before a lift
			c.lost[dropLifted] += offered.n * uint64(len(r.Limits))
			continue
		}
		t.advance(now)
		t.add(offered.n, time.UnixMilli(what.tick))
		if t.since == 0 {
			t.since = offered.at
		}
		keep(&t.sample, &offered.sample)
		c.evaluate(t, offered.n, now)
		c.send(t, now)
	}
}

// catchUp resets the counts of t if its mitigation was lifted.
func (c *Loop) catchUp(t *track) {
	if generation := c.o.Table.Generation(t.key); generation > t.generation {
		t.lift(generation)
	}
}

// maxSample is the maximum size of each value of a sample, in bytes.
const maxSample = 256

// keep copies s to sample, truncated. It clones the strings, which else would keep the whole
// request line in memory.
func keep(sample, s *mitigation.Sample) {
	sample.Client = s.Client
	for _, each := range [...]struct{ to, from *string }{{&sample.Method, &s.Method}, {&sample.Host, &s.Host}, {&sample.Path, &s.Path}} {
		if text := (*each.from)[:min(len(*each.from), maxSample)]; *each.to != text {
			*each.to = strings.Clone(text)
		}
	}
}

// track returns the track of key, which it makes if missing. A new track may evict the least
// recently used one, preferably one that is far from its threshold.
func (c *Loop) track(key counter.Key, r *rule.Rule, now time.Time, outdated []outdated) *track {
	part := c.tracks[key[0]%trackParts]
	if t, ok := part.Get(key); ok {
		return t
	}
	t := &track{key: key, lost: &c.lost}
	t.setRule(r, now, outdated)
	if part.Len() >= (c.o.TrackedKeys+trackParts-1)/trackParts {
		for range maxSpared {
			if oldest, old, ok := part.GetOldest(); ok && old.near {
				part.Get(oldest)
				continue
			}
			break
		}
	}
	part.Add(key, t)
	return t
}

// maxSpared is how many keys near their threshold are skipped in a row for eviction.
const maxSpared = 8

// forgotten is called for an evicted track.
func (c *Loop) forgotten(_ counter.Key, t *track) {
	c.metrics.evicted.Inc()
	t.forgotten = true
	t.leave()
	if t.flying {
		return // answered calls lose
	}
	c.lose(t)
}

// lose drops the unsent requests of a forgotten track.
func (c *Loop) lose(t *track) {
	cause := dropMemory
	if t.owner == nil || t.owner.shard.Down() {
		cause = dropShard
	}
	t.loseAll(cause)
}

// evaluate starts the mitigation of t if a limit is exceeded. n is the number of requests since
// the last flush.
func (c *Loop) evaluate(t *track, n uint64, now time.Time) {
	rules := c.rules.Load()
	if t.rule == nil { // only its record matters
		return
	}
	r := rules.set.Current(t.rule)
	if r == nil { // it was removed since
		return
	}
	t.setRule(r, now, rules.outdated[r])
	c.catchUp(t)
	f, over := t.evaluate(now, n)
	c.near.set(t.key, t.near)
	if !over || r.OnFailure == rule.FailOpen && c.Unavailable(t.key) {
		return // it is evaluated again when the shard has answered
	}
	if record, ok := c.o.Exceeded(t.key, r, f, &t.sample, now); ok {
		t.store = true
		c.o.Started(record, r)
	}
}
