package pop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/tick"
	"github.com/edgelimit/edge/mitigation"
)

// LocalOptions configures a Local. Node requires the same fields as for a single node, except those that differ
// between the nodes.
type LocalOptions struct {
	// Nodes is the number of nodes. Required.
	Nodes int

	// Listen is the address that clients connect to. Each connection goes to the next node. If empty, clients
	// connect to the nodes themselves.
	Listen string

	// Node has the options of each node. The PoP sets Name, Listen, MetricsListen, AdminListen and Peers, and
	// appends the node's name to DecisionLog. Without Shards, each node gets a shard that all nodes use.
	Node Options

	// Addrs returns the addresses of the ith node's listeners. If nil, free ports of 127.0.0.1
	// are used.
	Addrs func(i int) (clients, metrics, admin string)
}

// A Local is a whole PoP in one process. Its nodes are as separate as those on several machines: they share only
// shards, and send each other messages.
type Local struct {
	nodes   []*Node
	shards  []string     // addresses of the embedded ones
	ln      net.Listener // for clients; nil if they connect to the nodes themselves
	running sync.WaitGroup
	end     context.CancelFunc // ends the shards and the nodes' exchange of statuses

	mu        sync.Mutex      // guards reactions
	reactions []time.Duration // see Reactions
}

// StartLocal starts a PoP. If it fails, nothing runs.
func StartLocal(o LocalOptions) (l *Local, err error) {
	if o.Nodes < 1 {
		return nil, errors.New("pop: a PoP needs at least one node")
	}
	if o.Addrs == nil {
		const free = "127.0.0.1:0"
		o.Addrs = func(int) (string, string, string) { return free, free, free }
	}
	if o.Node.Secret == "" && o.Node.SecretFile == "" {
		o.Node.Secret = rand.Text()
	}
	o.Node.Logger = cmp.Or(o.Node.Logger, slog.Default())
	ctx, end := context.WithCancel(context.Background())
	l = &Local{end: end}
	defer func() {
		if err != nil {
			_ = l.Stop(context.Background())
		}
	}()
	if len(o.Node.Shards) == 0 {
		if err := l.startShards(ctx, o.Nodes); err != nil {
			return l, err
		}
		o.Node.Shards = l.shards
	}
	for i := range o.Nodes {
		node := o.Node
		node.Name = fmt.Sprintf("node-%d", i+1)
		node.Listen, node.MetricsListen, node.AdminListen = o.Addrs(i)
		node.Logger = o.Node.Logger.With("node", node.Name)
		node.Peers, node.local = localPeers{l, node.Name}, l
		if node.DecisionLog != "" {
			node.DecisionLog += "." + node.Name
		}
		node.MaxNodes = max(node.MaxNodes, o.Nodes)
		n, err := New(node)
		if err != nil {
			return l, err
		}
		l.nodes = append(l.nodes, n)
	}
	// After New, so that errors in rules files are reported before an address that is in use.
	if o.Listen != "" {
		if l.ln, err = net.Listen("tcp", o.Listen); err != nil {
			return l, fmt.Errorf("pop: listening for clients: %w", err)
		}
	}
	for _, n := range l.nodes {
		if err := n.Start(); err != nil {
			return l, err
		}
	}
	l.running.Go(func() { tick.Every(ctx, tellInterval, l.tell) })
	if l.ln != nil {
		pipes := make([]*shard.Pipe, o.Nodes)
		for i, n := range l.nodes {
			pipes[i] = shard.NewPipe()
			if err := n.Serve(pipes[i]); err != nil {
				return l, err
			}
		}
		l.running.Go(func() { spread(newRetryListener(l.ln, o.Node.Logger, func() {}), pipes) })
	}
	return l, nil
}

// localPeers implements Peers within a process.
type localPeers struct {
	local *Local
	name  string
}

// Send delivers a message to all peers.
func (p localPeers) Send(message []byte) {
	for _, peer := range p.local.nodes {
		if peer.Name() != p.name {
			_ = peer.Receive(p.name, message, 0) // our own messages can be decoded
		}
	}
}

// told records how long it took until all nodes had r, which Send has just delivered.
func (l *Local) told(r mitigation.Record) {
	if r.Sample == nil {
		return // an extension, a lift, or a mitigation by hand
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reactions = append(l.reactions, time.Since(time.UnixMicro(r.Sample.At)))
}

// Reactions returns, for each mitigation that a node has started, the time from the arrival of the request that
// exceeded the limit until all nodes had the record, the shortest first.
func (l *Local) Reactions() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.reactions))
}

// SendTo delivers messages to one peer.
func (p localPeers) SendTo(name string, messages ...[]byte) (ok bool) {
	for _, peer := range p.local.nodes {
		if peer.Name() == name {
			ok = true
			for _, message := range messages {
				_ = peer.Receive(p.name, message, 0)
			}
		}
	}
	return ok
}

// ClockAhead returns 0: the nodes of a process share a clock.
func (localPeers) ClockAhead() time.Duration { return 0 }

// tellInterval is how often the nodes of a Local tell each other their status: as often as by gossip.
const tellInterval = 250 * time.Millisecond

// tell sends each node's status to the others.
func (l *Local) tell() {
	for _, from := range l.nodes {
		status := from.Status()
		for _, to := range l.nodes {
			if to != from {
				_ = to.ReceiveStatus(from.Name(), status, false) // our own statuses can be decoded
			}
		}
	}
}

// startShards starts n shards, which run until ctx is done.
func (l *Local) startShards(ctx context.Context, n int) error {
	for range n {
		server := shard.New(shard.Options{})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("pop: listening for a shard: %w", err)
		}
		l.shards = append(l.shards, ln.Addr().String())
		l.running.Go(func() { _ = server.Serve(ctx, ln) })
	}
	return nil
}

// Nodes returns the nodes.
func (l *Local) Nodes() []*Node { return l.nodes }

// Addr returns the address that clients connect to, or nil if they connect to the nodes themselves.
func (l *Local) Addr() net.Addr {
	if l.ln == nil {
		return nil
	}
	return l.ln.Addr()
}

// ShardAddrs returns the addresses of the embedded shards.
func (l *Local) ShardAddrs() []string { return l.shards }

// Reload reloads the rules files of all nodes.
func (l *Local) Reload() error {
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.Reload())
	}
	return errors.Join(errs...)
}

// Stop stops all nodes at the same time, then the shards. See Node.Stop.
func (l *Local) Stop(ctx context.Context) error {
	if l.ln != nil {
		_ = l.ln.Close()
	}
	errs := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, n := range l.nodes {
		wg.Go(func() { errs[i] = n.Stop(ctx) })
	}
	wg.Wait()
	l.end()
	l.running.Wait()
	return errors.Join(errs...)
}

// spread distributes the connections of ln over pipes in turn, as the routers of a PoP do, until ln is closed. It does
// not proxy connections, so nodes see the client itself.
func spread(ln net.Listener, pipes []*shard.Pipe) {
	for i := 0; ; i++ {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if !give(conn, pipes, i) {
			_ = conn.Close()
		}
	}
}

// give passes conn to the ith pipe, or to the next open one.
func give(conn net.Conn, pipes []*shard.Pipe, i int) bool {
	for j := range pipes {
		if pipes[(i+j)%len(pipes)].Give(context.Background(), conn) == nil {
			return true
		}
	}
	return false
}
