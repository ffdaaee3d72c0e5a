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
	// Secret makes the keys. Every node of a PoP has the same.
	Secret counter.Secret

	// Node tells this node's records from those of others.
	Node mitigation.NodeID

	// Rules are the first set; SetRules replaces it.
	Rules *rule.Set

	// Table holds the mitigations. The Limiter runs it.
	Table *mitigation.Table

	// Shards own the counters; SetShards replaces them. Without any the node counts alone.
	Shards []count.Shard

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
	// its way to a sub-window, which holds few bits; at least counter.MinNodes are assumed.
	// Where there are more than counter.Layout.MostNodes, each counts by itself. If nil, 0.
	Nodes func() int

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

// A Limiter decides about requests and counts them. Its methods may be called concurrently, but
// for Run, which is called once.
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

// New returns a Limiter. It decides at once, but counts nothing before Run is called.
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

// rules is a set with what belongs to each of its rules.
type rules struct {
	set     *rule.Set
	none    *ruleMetrics // of requests that no rule decided
	metered []*ruleMetrics
}

func (r *rules) metrics(of *rule.Rule) *ruleMetrics {
	if of == nil {
		return r.none
	}
	return r.metered[of.Index]
}

// SetRules replaces the rules, all at once. Active mitigations keep their end. See
// [count.Loop.SetRules] for what becomes of counts.
func (l *Limiter) SetRules(set *rule.Set) {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.Loop.SetRules(set)
	l.rules.Store(l.metrics.bind(set))
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *rule.Set { return l.rules.Load().set }

// Learn merges a record that another node made, and reports whether it was news. source
// is "peer" or "shard".
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

// Run counts what is offered and ends mitigations at their time, until ctx is done. Then
// it sends what is still queued, for Options.Drain at most, and returns once all its
// goroutines have.
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

// Step does what is due besides Flush, in the caller's goroutine: see [count.Loop.Flush]. It
// returns when there will be more to do, zero if nothing is known of.
func (l *Limiter) Step() (next time.Time) {
	next = l.Loop.Step()
	ends := l.o.Table.Expire(l.o.Now(), l.ended)
	if next.IsZero() || !ends.IsZero() && ends.Before(next) {
		return ends
	}
	return next
}
