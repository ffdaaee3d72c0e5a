package limit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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

// Options configures a Limiter. Table and Rules are required; the zero value of every
// other field is usable.
type Options struct {
	// Secret makes the keys. Every node of a PoP has the same.
	Secret counter.Secret

	// Node tells this node's records from those of others.
	Node mitigation.NodeID

	// Rules are the first set; SetRules replaces it.
	Rules *rule.Set

	// Table holds the mitigations. The Limiter runs it.
	Table *mitigation.Table

	// Shards own the counters; SetShards replaces them. Without any the node counts alone.
	Shards []Shard

	// Settle is after how long at most all nodes of the PoP have made the same change of
	// the shards. Then what former owners have is final, and is read once more. If zero,
	// 1 s.
	Settle time.Duration

	// Client says which part of an address is one client. If zero, an IPv4 address, an
	// IPv6 /64.
	Client rule.ClientPrefix

	// Interval is how long a count waits for others of its key before it is sent. If
	// zero, 2 ms.
	Interval time.Duration

	// Queue is how many keys wait at most. If zero, 16384.
	Queue int

	// TrackedKeys is of how many keys the counts are remembered. A key that is
	// forgotten is read anew with its next count. If zero, 262144.
	TrackedKeys int

	// Nodes returns how many nodes the PoP has, at most. It bounds what one of them has on
	// its way to a sub-window, which holds few bits; fewer than MinNodes count as so many.
	// Where there are more than MostNodes, each counts by itself. If nil, 0.
	Nodes func() int

	// Workers is how many round trips a shard is sent at once. If zero, 8.
	Workers int

	// Drain bounds how long Run goes on sending what is counted after its context is
	// done. If zero, 2 s.
	Drain time.Duration

	// Publish passes a record that this node made or prolonged on to the other nodes. It
	// must not block. May be nil.
	Publish func(mitigation.Record)

	// Now reads the node's clock, by which windows and deadlines are. If nil, time.Now.
	Now func() time.Time

	// Ahead returns how far this node's clock is ahead of the other nodes', of the one that
	// is most behind: for so long after the beginning of a window others may still count in
	// the one before. If nil, 0.
	Ahead func() time.Duration

	// Refresh is how often records of active mitigations are read from the shards, for a
	// node that is told of lifts by nobody. If zero, they are not.
	Refresh time.Duration

	// LogClients lets log lines name the client and its request. They are personal data,
	// so by default only the key is logged.
	LogClients bool

	// Logger gets a line for each mitigation that starts or ends. If nil, slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Table == nil || o.Rules == nil {
		return o, errors.New("limit: Table and Rules are required")
	}
	if o.Queue < 0 || o.TrackedKeys < 0 || o.Workers < 0 || o.Interval < 0 || o.Drain < 0 || o.Settle < 0 || o.Refresh < 0 {
		return o, errors.New("limit: Queue, TrackedKeys, Workers, Interval, Drain, Settle and Refresh cannot be negative")
	}
	if o.Client.IPv4 < 0 || o.Client.IPv4 > 32 || o.Client.IPv6 < 0 || o.Client.IPv6 > 128 {
		return o, fmt.Errorf("limit: a client cannot be an IPv4 /%d or an IPv6 /%d", o.Client.IPv4, o.Client.IPv6)
	}
	if o.Interval == 0 {
		o.Interval = 2 * time.Millisecond
	}
	if o.TrackedKeys == 0 {
		o.TrackedKeys = 1 << 18
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	if o.Drain == 0 {
		o.Drain = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Nodes == nil {
		o.Nodes = func() int { return 0 }
	}
	if o.Ahead == nil {
		o.Ahead = func() time.Duration { return 0 }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// A Limiter decides about requests and counts them. Decide, Answered, Quotas, SetRules,
// SetShards, SetOut and Learn may be called concurrently; Run once.
type Limiter struct {
	o       Options
	rules   atomic.Pointer[rules]
	queue   *async.Queue[arrival, offered]
	near    nearSet
	tracks  [trackParts]*lru.Cache[counter.Key, *track]
	placed  atomic.Pointer[placement]
	nowhere *lane // keys that wait for a shard to be in
	later   later
	alone   atomic.Bool // no shard is available
	late    atomic.Bool // Run ends, and the time to drain is over
	metrics *metrics

	loading  sync.Mutex // held by SetRules
	merging  sync.Mutex // held by merge: a mitigation starts once
	checking sync.Mutex // held by checkAlone

	members sync.Mutex  // guards what follows
	lanes   []*lane     // in the order of their addresses
	out     []string    // addresses of those that own nothing for now, in order
	start   func(*lane) // starts a lane; nil unless Run runs
	ends    bool        // Run ends: lanes are closed, also new ones
}

// trackParts is how many locks the tracks share.
const trackParts = 64

// An arrival is what is counted together: a key in a tick.
type arrival struct {
	key  counter.Key
	tick int64 // when it begins, in milliseconds since the Unix epoch
}

// ticks of a rule, in milliseconds. Windows begin at whole seconds, so that a second lies in
// one window of each limit, and in one sub-window where those last whole seconds too. Others
// need shorter ticks: one that the edge of two sub-windows cuts counts in the earlier one,
// so that some requests are taken for older than they are, and none for younger.
const (
	longTick  = 1000
	shortTick = 10
)

// tickOf returns the tick in which a request that r counts arrives at now.
func tickOf(r *rule.Rule, now time.Time) int64 {
	for i := range r.Limits {
		if n := r.Limits[i].SubWindows; n > 1 && r.Limits[i].Period%(time.Duration(n)*time.Second) != 0 {
			ms := now.UnixMilli()
			return ms - ms%shortTick
		}
	}
	return now.Unix() * longTick
}

// offered is what waits to be counted.
type offered struct {
	rule   *rule.Rule
	n      uint64
	sample mitigation.Sample // of the last request
}

// New returns a Limiter. It decides at once, but counts nothing before Run is called.
func New(o Options) (*Limiter, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Limiter{o: o}
	l.nowhere = newLane(nil, l.laneSize())
	l.metrics = newMetrics(o.Registerer, l)
	for i := range l.tracks {
		if l.tracks[i], err = lru.NewWithEvict((o.TrackedKeys+trackParts-1)/trackParts, l.forgotten); err != nil {
			return nil, fmt.Errorf("limit: %w", err)
		}
	}
	l.queue, err = async.New(async.Options[arrival, offered]{
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
	lanes, err := l.lanesOf(o.Shards)
	if err != nil {
		return nil, err
	}
	if err := l.setLocked(lanes, nil); err != nil {
		return nil, err
	}
	o.Table.OnEvict(l.readAgain)
	l.later.wake = make(chan struct{}, 1)
	l.SetRules(o.Rules)
	return l, nil
}

// rules is a set with what belongs to each of its rules.
type rules struct {
	set      *rule.Set
	outdated map[*rule.Rule][]outdated  // layouts that limits of the set had before
	packed   [counter.MaxFields + 1]int // how many limits have so many sub-windows
	none     *ruleMetrics               // of requests that no rule decided
	metered  []*ruleMetrics
}

func (r *rules) metrics(of *rule.Rule) *ruleMetrics {
	if of == nil {
		return r.none
	}
	return r.metered[of.Index]
}

// SetRules replaces the rules, all at once. Rules that keep their ID and characteristics
// keep their counts, and active mitigations keep their end. A limit with other sub-windows
// than before counts in other counters; the ones before count as well until what they say has
// left the period. All nodes of a PoP are to load the same rules within 5 s.
func (l *Limiter) SetRules(set *rule.Set) {
	l.loading.Lock()
	defer l.loading.Unlock()
	bound := l.metrics.bind(set)
	bound.packed = packedIn(set)
	bound.outdated = l.rules.Load().outdatedBy(set, l.o.Now())
	l.rules.Store(bound)
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *rule.Set { return l.rules.Load().set }

// Learn merges a record that another node made, and reports whether it was news. source
// is "peer" or "shard".
func (l *Limiter) Learn(r mitigation.Record, source string, now time.Time) bool {
	if held, ok := l.o.Table.Held(r.Key, now); r.Lifted && (!ok || r.Wins(held)) {
		l.forgetCounts(r.Key) // before they can mitigate the key again
	}
	if !l.o.Table.Merge(r, now) {
		return false
	}
	l.metrics.learned[source].Inc()
	l.o.Logger.Debug("mitigation learned", "key", r.Key, "from", source, "for", r.Deadline.Sub(now), "why", r.Why)
	return true
}

// readAgain lets the record of key, which the table has forgotten, be read with the key's
// next count.
func (l *Limiter) readAgain(key counter.Key) {
	if t, ok := l.tracks[key[0]%trackParts].Peek(key); ok {
		t.mu.Lock()
		t.readRecord = true
		t.mu.Unlock()
	}
}

// Run counts what is offered and ends mitigations at their time, until ctx is done. Then
// it sends what is still queued, for Options.Drain at most, and returns once all its
// goroutines have.
func (l *Limiter) Run(ctx context.Context) {
	// Stages end in the order of the way that a count takes.
	var queue, rest, workers sync.WaitGroup
	stop, stopped := context.WithCancel(context.Background())
	defer stopped()
	queue.Go(func() { l.queue.Run(ctx, l.flush) })
	rest.Go(func() { l.o.Table.Run(stop, l.o.Now, l.ended) })
	rest.Go(func() { l.later.run(stop, l.o.Now, l.dispatch) })
	if l.o.Refresh > 0 {
		rest.Go(func() { l.refreshAgain(stop) })
	}
	l.members.Lock()
	l.start = func(ln *lane) {
		rest.Go(func() { ln.retry(stop, l.watch) })
		for range l.o.Workers {
			workers.Go(func() { l.work(ln) })
		}
	}
	for _, ln := range l.lanes {
		l.start(ln)
	}
	l.members.Unlock()
	l.checkAlone()
	queue.Wait()
	l.members.Lock()
	l.start, l.ends = nil, true
	for _, ln := range l.lanes {
		ln.close()
	}
	l.members.Unlock()
	late := time.AfterFunc(l.o.Drain, func() { l.late.Store(true) })
	workers.Wait()
	late.Stop()
	stopped()
	rest.Wait()
	l.dropRest()
}

// dropRest counts what could not be sent before the end: lanes are closed and empty.
func (l *Limiter) dropRest() {
	l.drop(l.nowhere.discard()...)
	for _, part := range l.tracks {
		l.drop(part.Values()...)
	}
}

// drop counts the requests of tracks that will not be sent.
func (l *Limiter) drop(tracks ...*track) {
	for _, t := range tracks {
		t.mu.Lock()
		l.reckon(t, dropShard, t.dropUnsent())
		t.mu.Unlock()
	}
}

// reckon counts what t has not counted: n requests and those that came too late, by cause,
// those of full sub-windows, and those that only this node counts. t.mu is held.
func (l *Limiter) reckon(t *track, cause string, n uint64) {
	l.metrics.dropped[cause].Add(float64(n + t.late()))
	l.metrics.dropped[dropFull].Add(float64(t.full()))
	l.metrics.dropped[dropNodes].Add(float64(t.alone()))
}
