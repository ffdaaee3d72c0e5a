// Package pop assembles a point of presence: a [Node] from the limiter, the proxy and the
// shards that it counts in, and [Local], several nodes in one process.
package pop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/decision"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/rule"
)

// A Node is one edge process of a PoP, or one of several in a process. Its methods may be
// called concurrently.
type Node struct {
	o        Options
	registry *prometheus.Registry
	limiter  *limit.Limiter
	proxy    *proxy.Proxy
	origins  proxy.Origins
	table    *mitigation.Table
	tokens   admin.Tokens // of operators
	secret   counter.Secret
	shards   []*memcached.Client
	inner    *innerShard // if no shards are given
	files    *files
	metrics  *metrics
	gossip   *gossip.Gossip // nil without gossip
	discover *discovery     // nil unless shards are found by gossip
	peering  *peering
	crowd    crowd
	ring     *ringWatch
	notices  *notices
	headers  headers

	decisions *decision.Log // nil without one

	upgraded context.Context // of connections that are no longer HTTP
	end      context.CancelFunc

	mu        sync.Mutex // guards what follows
	state     state
	servers   []server // of clients
	operators []*http.Server
	addrs     map[string]net.Addr
	running   sync.WaitGroup // what Start and Serve have started, but for the limiter
	stop      context.CancelFunc
	counted   chan struct{} // closed when the limiter has ended
	stopped   chan struct{} // closed when Stop has
	stopErr   error

	upgrading  upgrades
	leaving    farewell
	unixSource sync.Once // the first PROXY header of that family was logged
}

type state int

const (
	made state = iota
	started
	stopping
)

// New makes a node. It opens no socket and starts nothing, so that errors in the options and
// rules files are returned first.
func New(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, registry: prometheus.NewRegistry(), addrs: map[string]net.Addr{}, counted: make(chan struct{}), stopped: make(chan struct{})}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	n.metrics = newMetrics(n.registry)
	n.notices = newNotices(o.Logger, o.Now, n.registry)
	if n.files, err = newFiles(o, n.metrics, &n.tokens); err != nil {
		return nil, err
	}
	if n.origins, err = o.origins(); err != nil {
		return nil, err
	}
	if err := n.makeLimiter(); err != nil {
		return nil, err
	}
	if err := n.makeDecisionLog(); err != nil {
		return nil, err
	}
	if err := n.makePeering(); err != nil {
		return nil, err
	}
	var access = o.Logger
	if !o.AccessLog {
		access = nil
	}
	n.proxy, err = proxy.New(proxy.Options{
		Limiter:     n.limiter,
		Origins:     n.origins,
		Trusted:     o.TrustedProxies,
		Headers:     o.Headers,
		NodeHeader:  o.NodeHeader,
		NodeName:    o.Name,
		BodyTimeout: o.BodyTimeout,
		BodyRate:    o.BodyRate,

		StrictHosts:   o.StrictHosts,
		StrictMethods: o.StrictMethods,

		AbandonedRequests: o.AbandonedRequests,

		Connections:       o.Connections,
		ClientConnections: o.ClientConnections,
		Client:            o.Client,

		Now:        o.Now,
		AccessLog:  access,
		Logger:     o.Logger,
		Notice:     n.notices.note,
		Registerer: n.registry,
	})
	if err != nil {
		return nil, err
	}
	n.upgraded, n.end = context.WithCancel(context.Background())
	return n, nil
}

// makeLimiter makes the limiter with its table and shards.
func (n *Node) makeLimiter() error {
	o := n.o
	var err error
	if n.secret, err = newSecret(o.Secret); err != nil {
		return err
	}
	o.ShardOptions.Metrics = memcached.NewMetrics(n.registry)
	away := o.ShardOptions
	if len(o.Shards) == 0 {
		if n.inner, err = newInnerShard(n.registry); err != nil {
			return err
		}
		o.ShardOptions.Dial = n.inner.pipe.Dial
		if o.ShardListen == "" {
			o.Shards = []string{"inside"}
		}
	}
	if o.ShardListen != "" {
		n.discover = &discovery{
			changed: make(chan struct{}, 1), known: map[string]*memcached.Client{}, sightings: sightings{},
			newOwn:  func(addr string) *memcached.Client { return memcached.New(addr, o.ShardOptions) },
			newAway: func(addr string) *memcached.Client { return memcached.New(addr, away) },
		}
	}
	for _, addr := range o.Shards {
		n.shards = append(n.shards, memcached.New(addr, o.ShardOptions))
	}
	if n.table, err = mitigation.New(mitigation.Options{Size: o.MitigationRecords, Registerer: n.registry}); err != nil {
		return err
	}
	n.limiter, err = limit.New(limit.Options{
		Secret:      n.secret,
		Node:        o.id(),
		Rules:       n.files.rules,
		Table:       n.table,
		Shards:      limiterShards(n.shards),
		Client:      o.Client,
		Interval:    o.FlushInterval,
		Queue:       o.QueueSize,
		TrackedKeys: o.TrackedKeys,
		Publish:     n.publish,
		Now:         o.Now,
		Ahead:       n.clockAhead,
		Nodes:       n.nodes,
		Refresh:     o.refresh(),
		LogClients:  o.LogClients,
		Logger:      o.Logger,
		Registerer:  n.registry,
	})
	return err
}

// nodes returns how many nodes the PoP has, as far as this one knows.
func (n *Node) nodes() int { return max(n.o.MaxNodes, int(n.peering.most.Load())) }

// clockAhead returns how far the node's clock is ahead of the others', as its peers know it.
func (n *Node) clockAhead() time.Duration {
	if n.o.Peers == nil {
		return 0
	}
	return n.o.Peers.ClockAhead()
}

// limiterShards returns shards as the limiter takes them.
func limiterShards(shards []*memcached.Client) []count.Shard {
	all := make([]count.Shard, len(shards))
	for i, s := range shards {
		all[i] = s
	}
	return all
}

// makePeering makes what the node talks with others by.
func (n *Node) makePeering() (err error) {
	set := func(shards []*memcached.Client, out ...string) error {
		return n.limiter.SetShards(limiterShards(shards), out...)
	}
	n.ring = newRingWatch(set, n.o.Logger, n.metrics.inRing, n.notices)
	if n.discover == nil {
		n.ring.replace(n.shards)
	}
	n.files.nodes = n.nodes
	n.peering = &peering{logger: n.o.Logger, full: n.table.Full, peers: map[string]*peer{}, names: map[mitigation.NodeID]string{n.o.id(): n.o.Name}}
	n.peering.register(n.registry, n.o.Now)
	g := n.o.Gossip
	if g == nil {
		return nil
	}
	n.peering.seeks = len(g.Join) > 0
	o := gossip.Options{
		Name:      n.o.Name,
		Listen:    g.Listen,
		Advertise: g.Advertise,
		Join:      g.Join,
		Keys:      n.files.keys,
		Receive: func(from string, message []byte, age time.Duration) {
			if err := n.Receive(from, message, age); err != nil {
				n.peering.undecodable(from, err, n.o.Now())
			}
		},
		Status:        n.Status,
		ReceiveStatus: n.ReceiveStatus,
		Joined:        n.joined,
		Twins:         func(text string) { n.notices.note(problemTwins, text) },
		Logger:        n.o.Logger,
		Registerer:    n.registry,
	}
	if n.discover != nil {
		o.Meta, o.Changed = n.discover.meta, n.discover.notice
	}
	if n.gossip, err = gossip.New(o); err != nil {
		return err
	}
	n.o.Peers, n.files.setKeys = n.gossip, n.gossip.SetKeys
	return nil
}

// newSecret returns the secret of text, or of random bytes if it is empty: then the node
// counts in a shard of its own.
func newSecret(text string) (counter.Secret, error) {
	if text == "" {
		text = randomSecret()
	}
	return counter.NewSecret(text)
}

// Name returns the node's name.
func (n *Node) Name() string { return n.o.Name }

// Handler returns what answers clients, for servers of one's own. The node counts only
// between Start and Stop.
func (n *Node) Handler() http.Handler { return n.proxy }

// Admit decides a request that another handler serves; see [proxy.Proxy.Admit].
func (n *Node) Admit(r *http.Request) *proxy.Admission { return n.proxy.Admit(r) }

// Gatherer returns the node's metrics.
func (n *Node) Gatherer() prometheus.Gatherer { return n.registry }

// Registerer takes more metrics, of what asks the node.
func (n *Node) Registerer() prometheus.Registerer { return n.registry }

// Rules returns the rules in force.
func (n *Node) Rules() *rule.Set { return n.limiter.Rules() }

// Addr returns the address of a listener that Start has opened: "http", "https", "metrics",
// "admin", "gossip", "shard", "check" or "spop". It is nil if the node does not listen for it.
func (n *Node) Addr(of string) net.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs[of]
}

// Start opens the node's listeners and begins to count. After an error nothing runs.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != made {
		return errors.New("pop: the node was started before")
	}
	listeners, err := n.listen()
	if err != nil {
		return err
	}
	if err := n.openDecisionLog(); err != nil {
		closeAll(listeners)
		return err
	}
	n.peering.start(n.o.Now())
	if n.gossip != nil {
		for _, l := range listeners {
			if l.name == "shard" {
				n.discover.port = l.Addr().(*net.TCPAddr).AddrPort().Port()
			}
		}
		if err := n.gossip.Start(); err != nil {
			closeAll(listeners)
			return err
		}
		n.addrs["gossip"] = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(n.gossip.Addr()))
	}
	if n.discover != nil {
		n.discover.gossip, n.discover.replace = n.gossip, n.ring.replace
		n.discover.look(time.Now()) // before there is something to count
	}
	n.state = started
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	go func() { // Stop waits for it
		n.limiter.Run(ctx)
		close(n.counted)
	}()
	if n.decisions != nil {
		n.running.Go(func() { n.decisions.Run(n.upgraded) }) // until all answers are counted
	}
	if n.inner != nil {
		n.running.Go(func() { n.inner.run(n.upgraded) })
	}
	n.running.Go(func() { n.files.watch(ctx, n.setRules) })
	if n.discover != nil {
		n.running.Go(func() { n.discover.run(ctx) })
	}
	if n.gossip != nil {
		watch := &clockWatch{offset: n.gossip.ClockOffset, rules: n.Rules, logger: n.o.Logger}
		n.running.Go(func() { watch.run(ctx) })
	}
	n.running.Go(func() { n.ring.runFollow(ctx) })
	if len(n.shards) > 1 || n.discover != nil {
		n.running.Go(func() { n.ring.run(ctx, n.o.Now, n.peering.votes) })
	}
	if len(n.shards) > 1 {
		n.running.Go(func() { n.ring.keep(ctx, n.secret.RecordKey(n.secret.Tag([]byte("drains")))) })
	}
	for _, l := range listeners {
		n.addrs[l.name] = l.Addr()
		if l.name == "shard" {
			ln := &steadyListener{Listener: l.Listener, logger: n.o.Logger}
			n.running.Go(func() { _ = n.inner.server.Serve(n.upgraded, ln) }) // until its context ends
			continue
		}
		switch l.name {
		case "check":
			n.serveAskedLocked(l.Listener)
		case "spop":
			n.serveHAProxyLocked(l.Listener)
		case "metrics":
			n.serveMetricsLocked(l.Listener)
		case "admin":
			n.serveAdminLocked(ctx, l.Listener)
		default:
			n.serveClientsLocked(l.Listener)
		}
	}
	return nil
}

// Serve lets clients connect by ln as well, until Stop, which closes it.
func (n *Node) Serve(ln net.Listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != started {
		return errors.New("pop: the node does not run")
	}
	if n.o.ProxyProtocol {
		ln = n.withProxyProtocol(ln)
	}
	n.serveClientsLocked(ln)
	return nil
}

// countingBehind is from which age of the oldest count on the node's readiness tells of it.
const countingBehind = time.Second

// readiness says why the node should get no connections, and what operators should know.
func (n *Node) readiness() (detail []string, err error) {
	n.mu.Lock()
	state := n.state
	n.mu.Unlock()
	if state != started {
		return nil, errors.New("the node stops")
	}
	if detail, err = n.peering.ready(n.o.Now()); err != nil {
		return nil, err
	}
	if keys, oldest := n.limiter.Backlog(); oldest >= countingBehind {
		detail = append(detail, fmt.Sprintf("counting is behind by %v; keys that wait for a shard: %d", oldest.Round(100*time.Millisecond), keys))
	}
	return append(append(detail, n.notices.details()...), n.crowded()...), nil
}

// Reload loads the rules files, the certificate, keys and tokens again. If something is wrong with one,
// the old ones stay.
func (n *Node) Reload() error { return n.files.reload(n.setRules) }

// SetRules replaces the rules of a node that was made without rules files. Rules with more
// sub-windows than the PoP's nodes can count in are refused, as are rules that name no host where
// [Options.StrictHosts] needs one; the old ones stay.
func (n *Node) SetRules(set *rule.Set) error {
	if err := n.o.checkRules(set, n.nodes()); err != nil {
		return err
	}
	n.setRules(set)
	return nil
}

// Lift ends the mitigation of a key on all nodes; see limit.Limiter.Lift.
func (n *Node) Lift(key counter.Key) (mitigation.Record, error) {
	return n.limiter.Lift(key, n.o.Now())
}

// Drain takes a shard out of the ring of all nodes, by its address: it owns no keys then, and
// theirs go to the others within a second; see [limit.Limiter.SetShards]. With on false it
// comes back. Shards that are given, and not found by gossip, keep that word, so that it
// outlives all nodes. Nodes without peers hear of it within 30 s.
func (n *Node) Drain(shard string, on bool) error { return n.ring.drain(shard, on, n.o.Now()) }
