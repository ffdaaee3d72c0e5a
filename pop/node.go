// Package pop assembles a point of presence. A [Node] consists of the limiter, the proxy and clients of the
// shards; a [Local] is several nodes in one process. A setting of a node is a field of [Options] and a row of
// the table in settings.go.
package pop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/tick"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/peers"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
)

// A Node is one edge process of a PoP, or one of several in a process. Its methods may be
// called concurrently.
type Node struct {
	o        Options
	registry *prometheus.Registry // of the node's own metrics
	process  *prometheus.Registry // of metrics of the Go runtime and the process, which are slow to gather
	notices  *notices
	files    *files
	secret   counter.Secret
	origins  proxy.Origins

	table     *mitigation.Table
	peerTable *peers.Table
	gossip    *gossip.Gossip // nil without gossip
	peers     Peers
	decisions *decision.Log // nil without a decision log
	limiter   *limit.Limiter
	operator  *operate.Operator

	inner  *shard.Server // the embedded shard, connected by pipe; nil if Options has Shards
	pipe   *shard.Pipe   // nil without inner
	shards *shards.Watch

	proxy   *proxy.Proxy
	headers *headers

	fallen uint64 // number of counters that had lost counts when inspectCounts last looked

	// The fields below are written by Start.
	counting context.Context // ends when Stop has waited for requests; their counts are sent after that
	stop     context.CancelFunc
	upgraded context.Context // of the goroutines that end last
	end      context.CancelFunc
	start    time.Time

	mu      sync.Mutex // guards the fields below
	state   state
	servers []server // of clients
	addrs   map[string]net.Addr
	running sync.WaitGroup // the other goroutines of Start, and those of Serve
	counted sync.WaitGroup // the goroutines that ask shards
	stopped chan struct{}  // closed when Stop is done
	stopErr error
}

type state int

const (
	made state = iota
	started
	stopping
)

// New returns a node. It opens no sockets and starts no goroutines, so errors in the options and rules files
// are reported first.
func New(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, registry: prometheus.NewRegistry(), process: prometheus.NewRegistry(), peers: noPeers{}, addrs: map[string]net.Addr{}, stopped: make(chan struct{})}
	n.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	if o.AddMetrics != nil {
		o.AddMetrics(n.registry)
	}
	n.headers = newHeaders(n.registry)
	version, _, _ := strings.Cut(o.Version, " ")
	promauto.With(n.registry).NewGauge(prometheus.GaugeOpts{
		Name: "edge_build_info", Help: "1; its labels are the version of the program and the name of the PoP, which alerts use to compare nodes.",
		ConstLabels: prometheus.Labels{"version": version, "pop": o.PoP},
	}).Set(1)
	n.notices = newNotices(o.Logger, o.Now, n.registry)
	n.peerTable = peers.New(o.Name, len(o.Gossip.Join) > 0, o.Now, o.Logger, n.registry)
	n.files = newFiles(&n.o, n.nodes, n.registry)
	rules, keys, err := n.files.load()
	if err == nil && rules == nil {
		rules, err = o.Rules, o.checkRules(o.Rules, o.MaxNodes)
	}
	if err != nil {
		return nil, err
	}
	n.noteCertificates()
	if n.origins, err = o.origins(); err != nil {
		return nil, err
	}
	// Without a secret the node counts alone.
	if n.secret, err = counter.NewSecret(cmp.Or(o.Secret, rand.Text())); err != nil {
		return nil, err
	}
	n.table = mitigation.New(mitigation.Options{Size: o.MitigationRecords, ID: n.secret.ID, Registerer: n.registry})
	var refresh time.Duration // interval at which records are reread; 0: never, because peers send them
	if o.Gossip.Listen != "" {
		if keys == nil {
			keys = o.Gossip.Keys
		}
		n.gossip, err = gossip.New(gossip.Options{
			Name: o.Name, Listen: o.Gossip.Listen, Advertise: o.Gossip.Advertise, Join: o.Gossip.Join, Keys: keys, MaxNodes: o.MaxNodes,
			Logger: o.Logger, Registerer: n.registry,
		})
		if err != nil {
			return nil, err
		}
		n.peers = n.gossip
	} else if o.Peers != nil {
		n.peers = o.Peers
	} else if len(o.Shards) > 0 {
		refresh = lonelyRefresh
	}
	if o.DecisionLog != "" {
		log := decision.Options{
			File: o.DecisionLog, Size: o.DecisionLogSize, Share: o.DecisionLogShare, Node: o.Name, Secret: n.secret,
			Clients: o.LogClients, Now: o.Now, Registerer: n.registry,
			Problem: func(text string) { n.notices.note(problemDecisionLog, text) },
		}
		if n.gossip != nil {
			log.Ahead = n.gossip.ClockAheadOfMost
		}
		n.decisions = decision.New(log)
	}
	n.limiter, err = limit.New(limit.Options{
		Secret: n.secret, Node: peers.ID(o.Name), Rules: rules, Table: n.table, Client: o.Client, LogClients: o.LogClients,
		Interval: o.FlushInterval, Queue: o.QueueSize, TrackedKeys: o.TrackedKeys,
		Publish: n.publish, Refresh: refresh, Nodes: n.nodes, Ahead: n.peers.ClockAhead,
		Now: o.Now, Logger: o.Logger, Registerer: n.registry,
	}, n.decisions)
	if err != nil {
		return nil, err
	}
	n.makeShards()
	n.operator = &operate.Operator{
		Name: o.Name, Version: o.Version, Now: o.Now, Logger: o.Logger, History: operate.NewHistory(n.registry, o.Now),
		Limiter: n.limiter, Table: n.table, Peers: n.peerTable, Ring: n.shards, Gossip: n.gossip, DecisionLog: n.decisions,
		Secret: n.secret, Client: o.Client, LogClients: o.LogClients,
		Ready: n.readiness, OwnStatus: n.ownStatus, ReloadFiles: n.reload,
		Certificates: func() []operate.Certificate { return n.files.certificates.Load().shown },
	}
	if len(o.RuleFiles) > 0 {
		n.operator.ReadRules = func() (*rule.Set, error) {
			rules, _, err := n.files.read()
			return rules, err
		}
	}
	n.registry.MustRegister(n.operator)
	var access *slog.Logger
	if o.AccessLog {
		access = o.Logger
	}
	n.proxy, err = proxy.New(proxy.Options{
		Limiter: n.limiter, Origins: n.origins, Trusted: o.TrustedProxies, Client: o.Client,
		Headers: o.Headers, NodeHeader: o.NodeHeader, NodeName: o.Name,
		StrictHosts: o.StrictHosts, StrictMethods: o.StrictMethods, Redirect: o.TLSRedirect,
		Connections: o.Connections, ClientConnections: o.ClientConnections,
		HeaderMemory: o.HeaderMemory, ClientHeaderMemory: o.ClientHeaderMemory,
		Now: o.Now, AccessLog: access, Logger: o.Logger, Notice: n.notices.note, Registerer: n.registry,
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// makeShards makes the clients of the shards, and the ring.
func (n *Node) makeShards() {
	o := shards.Options{
		Addrs: n.o.shards, Client: n.o.ShardOptions,
		Set: n.limiter.SetShards, Votes: n.peerTable.Votes,
		DrainsItem:  n.secret.RecordItem(n.secret.Tag([]byte("drains"))),
		ClientsItem: n.secret.RecordItem(n.secret.Tag([]byte("clients"))), Clients: n.keepClients,
		Problem: func(text string) { n.notices.note(problemNoShard, text) },
		Unfit:   func(text string) { n.notices.note(problemShard, text) },
		Now:     n.o.Now, Logger: n.o.Logger, Registerer: n.registry,
	}
	if len(o.Addrs) == 0 {
		n.inner = shard.New(shard.Options{Registerer: n.registry})
		n.pipe = shard.NewPipe()
		o.Own = n.pipe.Dial
	}
	if n.o.ShardListen != "" {
		o.Peers = n.gossip.Peers
	}
	n.shards = shards.New(o)
}

// ShardNames returns the addresses of the configured shards, without secrets.
func (n *Node) ShardNames() []string { return prose.Texts(n.o.shards, shards.Address.String) }

// keepClients merges stored records of clients that operators refuse, regardless of rules, and returns those to store.
func (n *Node) keepClients(stored []byte) (all []byte) {
	const most = 1 << 16 // bytes
	now := n.o.Now()
	for len(stored) >= mitigation.StoredSize {
		r, err := mitigation.ParseStored(stored[:mitigation.StoredSize], counter.Key(stored[8:]), now)
		stored = stored[mitigation.StoredSize:]
		if err == nil {
			r.Rule = mitigation.AnyRule
			n.limiter.Learn(r, "shard", now)
		}
	}
	if !n.table.MayRule(mitigation.AnyRule) {
		return nil
	}
	for r := range n.table.All(now) {
		if r.Rule == mitigation.AnyRule && len(all) < most {
			all = r.AppendStored(all)
		}
	}
	return all
}

// nodes returns the maximum number of nodes in the PoP: MaxNodes, or more if more were seen.
func (n *Node) nodes() int { return max(n.o.MaxNodes, n.peerTable.MaxSeen()) }

// Name returns the node's name.
func (n *Node) Name() string { return n.o.Name }

// Admit decides whether a request that the caller serves itself may pass; see [proxy.Proxy.Admit].
func (n *Node) Admit(r *http.Request) *proxy.Admission { return n.proxy.Admit(r) }

// Gatherer returns the node's metrics.
func (n *Node) Gatherer() prometheus.Gatherer { return prometheus.Gatherers{n.registry, n.process} }

// Registerer returns a registerer for metrics in addition to the node's own.
func (n *Node) Registerer() prometheus.Registerer { return n.registry }

// Rules returns the current rules.
func (n *Node) Rules() *rule.Set { return n.limiter.Rules() }

// Addr returns the address of a listener that Start opened: "http", "https", "http3", "metrics", "admin",
// "gossip", "shard", "check" or "spop". It is nil if the node has no such listener.
func (n *Node) Addr(listener string) net.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs[listener]
}

// Start opens the listeners and starts to serve and count. If it fails, nothing runs.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != made {
		return errors.New("pop: the node was already started")
	}
	n.counting, n.stop = context.WithCancel(context.Background())
	n.upgraded, n.end = context.WithCancel(context.Background())
	n.start = n.o.Now()
	listeners, err := n.listen()
	for _, l := range listeners {
		n.addrs[l.name] = l.Addr()
	}
	if err == nil && n.decisions != nil {
		err = n.decisions.Open()
		if err != nil {
			err = &setting.Error{Setting: "decision-log", Value: strconv.Quote(n.o.DecisionLog), Problem: err.Error()}
		}
	}
	if err == nil {
		err = n.join()
	}
	if err != nil {
		closeAll(listeners)
		clear(n.addrs)
		return err
	}
	n.state = started
	n.counted.Go(func() { n.limiter.Run(n.counting) })
	n.counted.Go(func() { n.shards.Run(n.counting) }) // while this node's own shard answers
	if n.decisions != nil {
		n.running.Go(func() { n.decisions.Run(n.upgraded) }) // until all answers are counted
	}
	if n.inner != nil {
		n.running.Go(func() { _ = n.inner.Serve(n.upgraded, n.pipe) }) // until its context ends
	}
	n.running.Go(func() { n.files.watch(n.counting, func() error { return n.reloadFor("file") }) })
	n.running.Go(func() { n.operator.History.Run(n.counting) })
	n.running.Go(func() { tick.Every(n.counting, lossInterval, n.inspectCounts) })
	n.running.Go(func() { tick.Every(n.counting, time.Minute, n.noteCertificates) })
	for _, l := range listeners {
		l.serve(l.Listener)
	}
	return nil
}

// join joins the peers and discovers their shards. mu is held.
func (n *Node) join() error {
	if n.gossip == nil {
		return nil
	}
	var port uint16 // of the embedded shard
	var meta []byte
	if n.o.ShardListen != "" {
		port = n.addrs["shard"].(*net.TCPAddr).AddrPort().Port()
		meta = shards.Meta(port)
	}
	handler := gossip.Handler{Receive: n.Receive, Status: n.Status, ReceiveStatus: n.ReceiveStatus}
	if err := n.gossip.Start(handler, meta); err != nil {
		return err
	}
	n.addrs["gossip"] = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(n.gossip.Addr()))
	var clock clockCheck
	n.running.Go(func() { tick.Every(n.counting, time.Second, func() { n.inspectPeers(&clock) }) })
	if n.o.ShardListen != "" {
		n.shards.Discover(n.gossip.Addr(), port, len(n.o.Gossip.Join) > 0) // before there are counts
	}
	return nil
}

// Serve accepts client connections from ln until Stop, which closes it.
func (n *Node) Serve(ln net.Listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != started {
		return errors.New("pop: the node is not running")
	}
	n.serveClientsLocked(newRetryListener(ln, n.o.Logger, n.proxy.MakeRoom))
	return nil
}

// countingBehind is the age of the oldest pending count at which readiness reports a backlog.
const countingBehind = time.Second

// readiness returns an error that says why the node should get no connections or, if it should, details for operators.
func (n *Node) readiness() (detail []string, err error) {
	n.mu.Lock()
	state := n.state
	n.mu.Unlock()
	if state != started {
		return nil, errors.New("the node is stopping")
	}
	if detail, err = n.peerTable.Ready(n.start, n.o.Now()); err != nil {
		return nil, err
	}
	for i := range detail {
		detail[i] += see(problemDiffer)
	}
	if keys, oldest := n.limiter.Backlog(); oldest >= countingBehind && !n.notices.has(problemNoShard) {
		detail = append(detail, fmt.Sprintf("counting is %v behind; keys waiting for a shard: %d", oldest.Round(100*time.Millisecond), keys)+see(problemBehind))
	}
	if text := n.files.problem.Load().(string); text != "" {
		detail = append(detail, text+see(problemReload))
	}
	return append(detail, n.notices.details()...), nil
}

// Reload reloads rules, certificates, keys and tokens, for an operator who sent SIGHUP. If one of these has an error, its
// previous version stays in force.
func (n *Node) Reload() error { return n.reloadFor("SIGHUP") }

// reloadFor reloads the files, and notes by as the cause.
func (n *Node) reloadFor(by string) error {
	err := n.reload()
	note := n.operator.Note
	if err != nil {
		note = n.operator.Remember // the caller logs each error
	}
	note(operate.Change{By: by, Do: "reload"}, err, "rules", len(n.Rules().Rules()))
	return err
}

func (n *Node) reload() error {
	return n.files.reload(func(rules *rule.Set, keys [][]byte) error {
		n.noteCertificates()
		if rules != nil {
			n.setRules(rules)
			n.o.Logger.Info("rules loaded", "rules", len(rules.Rules()))
		}
		if keys != nil {
			return n.gossip.SetKeys(keys)
		}
		return nil
	})
}

// Operator returns the operations that operators can carry out on the node, once it has started.
func (n *Node) Operator() *operate.Operator { return n.operator }

// SetRules replaces the rules of a node without rules files. It returns an error if set has more sub-windows than the
// number of nodes allows, or names no host although [Options.StrictHosts] requires one. After an error, the old rules
// stay in force.
func (n *Node) SetRules(set *rule.Set) error {
	if err := n.o.checkRules(set, n.nodes()); err != nil {
		return err
	}
	n.setRules(set)
	return nil
}

// setRules replaces the rules with set, which has been checked.
func (n *Node) setRules(set *rule.Set) {
	former := n.Rules()
	n.limiter.SetRules(set)
	if freed := n.operator.Freed(former, set); freed > 0 {
		n.o.Logger.Info("the new rules free mitigated clients", "mitigations", freed)
	}
	n.noteNodes()
	if !slices.ContainsFunc(set.Rules(), (*rule.Rule).CountsAnswer) {
		n.notices.note(proxy.ProblemReports, "") // nothing needs to be reported
	}
}
