package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Limiter. Table and Rules are required; the zero value of every
// other field is usable.
type Options struct {
	// Secret derives the keys. All nodes of a PoP share it.
	Secret counter.Secret

	// Node identifies this node in its records.
	Node mitigation.NodeID

	// Rules is the initial set; SetRules replaces it.
	Rules *rule.Set

	// Table holds the mitigations. The Limiter runs it.
	Table *mitigation.Table

	// Shards own the counters; SetShards replaces them. If empty, the node counts alone.
	Shards []count.Shard

	// Settle is the maximum time until all nodes of the PoP have made the same change of
	// the shards. Then the counts at former owners are final, and are read again. If zero,
	// 1 s.
	Settle time.Duration

	// Client is the prefix of an address that identifies a client. If zero, /32 for IPv4
	// and /64 for IPv6.
	Client rule.ClientPrefix

	// Interval is how long requests of a key are collected before they are counted. If
	// zero, 2 ms.
	Interval time.Duration

	// Queue is the maximum number of keys in the queue. If zero, 16384.
	Queue int

	// TrackedKeys is the maximum number of keys whose counts are in memory. The counts of an
	// evicted key are read again with its next request. If zero, 262144.
	TrackedKeys int

	// Nodes returns the maximum number of nodes in the PoP, which bounds how much each may
	// have in flight to a sub-window; at least counter.MinNodes are assumed. With more than
	// counter.Layout.MostNodes, each node counts alone. If nil, 0.
	Nodes func() int

	// Drain bounds how long Run sends waiting counts after its context is done. If zero,
	// 2 s.
	Drain time.Duration

	// Publish sends a record that this node made or prolonged to its peers. It must not
	// block. May be nil.
	Publish func(mitigation.Record)

	// Now reads the clock for windows and deadlines. If nil, time.Now.
	Now func() time.Time

	// Ahead returns how far this node's clock is ahead of its slowest peer's: for this long
	// after a window begins, peers may still count in the previous one. If nil, 0.
	Ahead func() time.Duration

	// Refresh is how often records of active mitigations are read from the shards, for a
	// node that no peer tells about lifts. If zero, never.
	Refresh time.Duration

	// LogClients includes the client and its request in log lines. They are personal data,
	// so by default only the key is logged.
	LogClients bool

	// Logger logs mitigations that start or end. If nil, slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Table == nil || o.Rules == nil {
		return o, errors.New("limit: Table and Rules are required")
	}
	if o.Queue < 0 || o.TrackedKeys < 0 || o.Interval < 0 || o.Drain < 0 || o.Settle < 0 || o.Refresh < 0 {
		return o, errors.New("limit: Queue, TrackedKeys, Interval, Drain, Settle and Refresh cannot be negative")
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

// A Limiter decides requests and counts them. Its methods may be called concurrently, except Run,
// which may be called once.
type Limiter struct {
	*count.Loop
	o       Options
	rules   atomic.Pointer[rules]
	metrics *metrics

	abandoned abandoned

	loading sync.Mutex // held by SetRules
	merging sync.Mutex // held by merge: a mitigation starts once
	flaps   flaps
}

// New returns a Limiter. It decides at once, but counts nothing until Run is called.
func New(o Options) (*Limiter, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Limiter{o: o, metrics: newMetrics(o.Registerer), abandoned: abandoned{byKey: map[counter.Key]int{}}, flaps: flaps{keys: map[counter.Key]*flap{}}}
	l.Loop, err = count.New(count.Options{
		Secret: o.Secret, Rules: o.Rules, Table: o.Table, Shards: o.Shards,
		Settle: o.Settle, Interval: o.Interval, Queue: o.Queue, TrackedKeys: o.TrackedKeys, Drain: o.Drain,
		Nodes: o.Nodes, Now: o.Now, Ahead: o.Ahead, Refresh: o.Refresh, Logger: o.Logger, Registerer: o.Registerer,
		Exceeded: l.merge,
		Started:  l.started,
		Learn:    func(r mitigation.Record, now time.Time) { l.Learn(r, "shard", now) },
	})
	if err != nil {
		return nil, err
	}
	l.SetRules(o.Rules)
	return l, nil
}

// rules is a set of rules with their metrics.
type rules struct {
	set     *rule.Set
	none    *ruleMetrics // for requests that no rule decided
	metered []*ruleMetrics
}

func (r *rules) metrics(of *rule.Rule) *ruleMetrics {
	if of == nil {
		return r.none
	}
	return r.metered[of.Index]
}

// SetRules replaces the rules atomically. Active mitigations keep their deadlines. For counts see
// [count.Loop.SetRules].
func (l *Limiter) SetRules(set *rule.Set) {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.Loop.SetRules(set)
	l.rules.Store(l.metrics.bind(set))
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *rule.Set { return l.rules.Load().set }

// Learn merges a record of another node, and reports whether it was new. source is "peer" or
// "shard".
func (l *Limiter) Learn(r mitigation.Record, source string, now time.Time) bool {
	if !l.o.Table.Merge(r, now) {
		return false
	}
	if r.Lifted {
		l.StoreLift(r.Key)
	}
	l.metrics.learned[source].Inc()
	l.o.Logger.Debug("mitigation learned", "key", r.Key, "from", source, "for", r.Deadline.Sub(now), "why", r.Why)
	return true
}

// Run counts requests and ends mitigations at their deadlines, until ctx is done. Then it drains
// the queue, for at most Options.Drain, and returns once all its goroutines have.
func (l *Limiter) Run(ctx context.Context) {
	var rest sync.WaitGroup
	stop, stopped := context.WithCancel(context.Background())
	defer stopped()
	rest.Go(func() { l.o.Table.Run(stop, l.o.Now, l.ended) })
	rest.Go(func() { l.runFlaps(stop) })
	l.Loop.Run(ctx)
	stopped()
	rest.Wait()
}

// Step replaces Run, together with Flush: see [count.Loop.Flush]. It returns when to call it next,
// zero if no work is scheduled.
func (l *Limiter) Step() (next time.Time) {
	next = l.Loop.Step()
	ends := l.o.Table.Expire(l.o.Now(), l.ended)
	if next.IsZero() || !ends.IsZero() && ends.Before(next) {
		return ends
	}
	return next
}
