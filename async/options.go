package async

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Loop, and the limiter in front of it. Table and Rules are required; the
// zero value of every other field is usable.
type Options struct {
	// Secret derives keys and items. All nodes of a PoP share it.
	Secret counter.Secret

	// Node identifies this node in its records.
	Node mitigation.NodeID

	// Rules is the initial set; SetRules replaces it.
	Rules *rule.Set

	// Table holds the mitigations. The Loop ends them. Their records are stored alongside the counters.
	Table *mitigation.Table

	// Shards own the counters; SetShards replaces them. If empty, the node counts alone.
	Shards []Shard

	// Client is the prefix of an address that identifies a client. If zero, /32 for IPv4 and
	// /64 for IPv6.
	Client rule.ClientPrefix

	// Interval is how long the requests of a key are collected before they are counted. If zero, 2 ms.
	Interval time.Duration

	// Queue is the maximum number of keys in the queue. If zero, 16384.
	Queue int

	// TrackedKeys is the maximum number of keys whose counts are in memory. The counts of an
	// evicted key are read again with its next request. If zero, 262144.
	TrackedKeys int

	// Nodes returns the maximum number of nodes in the PoP, which bounds how many increments of one sub-window each may
	// have in flight; at least counter.MinNodes are assumed. With more than counter.Layout.MaxNodes, each node counts
	// alone. If nil, 0.
	Nodes func() int

	// Drain bounds how long Run still sends waiting counts after its context is done. If zero, 2 s.
	Drain time.Duration

	// Publish sends a record that this node made or extended to its peers. It must not block. May be nil.
	Publish func(mitigation.Record)

	// Now reads the clock for windows and deadlines. If nil, time.Now.
	Now func() time.Time

	// Ahead returns how far this node's clock is ahead of the peer's that is furthest behind: for this long after a window
	// begins, peers may still count in the previous one. If nil, 0.
	Ahead func() time.Duration

	// Refresh is how often records of active mitigations are read from the shards, for
	// nodes that do not learn of lifts from peers. If zero, never.
	Refresh time.Duration

	// LogClients includes the client and its request in log lines. They are personal data,
	// so by default only the key is logged.
	LogClients bool

	// Logger logs mitigations that start or end. If nil, slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.Queue = cmp.Or(o.Queue, 1<<14)
	o.Interval = cmp.Or(o.Interval, 2*time.Millisecond)
	o.TrackedKeys = cmp.Or(o.TrackedKeys, 1<<18)
	o.Drain = cmp.Or(o.Drain, 2*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Nodes == nil {
		o.Nodes = func() int { return 0 }
	}
	if o.Ahead == nil {
		o.Ahead = func() time.Duration { return 0 }
	}
	if o.Publish == nil {
		o.Publish = func(mitigation.Record) {}
	}
	return o
}
