package proxy

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/rule"
)

// connections bounds the connections of each client and of all clients. When connections become scarce,
// those of refused clients are closed first.
type connections struct {
	max, maxPerClient int
	prefix            rule.ClientPrefix

	scarce atomic.Bool // more than three quarters are in use: refusals close their connections

	full, greedy prometheus.Counter // connections closed when they were accepted
	idle         prometheus.Counter // connections closed while idle

	memory *conns.Budget // for what is not yet a request

	mu       sync.Mutex // guards the fields below
	all      int
	byClient map[netip.Addr]int
	end      []func(refused bool, limit int) (ended int)
	endAt    time.Time // when end may be called again
}

// endPause is the minimum time between two searches for idle connections, which may be many.
const endPause = 100 * time.Millisecond

func newConnections(o *Options) *connections {
	c := &connections{
		max: cmp.Or(o.Connections, math.MaxInt), maxPerClient: cmp.Or(o.ClientConnections, math.MaxInt),
		prefix: o.Client, byClient: map[netip.Addr]int{},
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && uint64(files.Cur) < uint64(c.max) {
		c.max = int(files.Cur / 8 * 7) // the rest is for origins and shards
		if o.ClientConnections > c.max/2 {
			c.maxPerClient = c.max / 2 // no client may use all, as by default
		}
	}
	f := promauto.With(o.Registerer)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_connections",
		Help: "Open client connections.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.all)
	})
	closed := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_connections_closed_total",
		Help: "Client connections closed because the node (full) or the client (client) had too many, while idle to make room (idle), or because those of the node (memory) or the client (client_memory) held too many bytes of incomplete headers.",
	}, []string{"reason"})
	memory := [...]prometheus.Counter{closed.WithLabelValues("memory"), closed.WithLabelValues("client_memory")}
	c.memory = conns.NewBudget(o.HeaderMemory, o.ClientHeaderMemory, func(client bool) {
		if client {
			memory[1].Inc()
		} else {
			memory[0].Inc()
		}
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_header_memory_bytes",
		Help: "Memory of incomplete headers, handshakes and frames of clients.",
	}, func() float64 { return float64(c.memory.Bytes()) })
	c.full, c.greedy, c.idle = closed.WithLabelValues("full"), closed.WithLabelValues("client"), closed.WithLabelValues("idle")
	return c
}

// addConnection counts a connection, as connections.add does. On a Unix socket, all peers are trusted, and peer is invalid.
func (p *Proxy) addConnection(conn net.Conn, peer netip.Addr) (held *conns.Holder, ended func()) {
	return p.connections.add(conn, peer, peer.IsValid() && !p.trusted.Contains(peer))
}

// add counts conn, a connection of peer. bounded is false for a trusted proxy. It returns what holds the connection's
// memory, and a function to call once when the connection has ended, or nil if the connection must be closed now.
func (c *connections) add(conn net.Conn, peer netip.Addr, bounded bool) (held *conns.Holder, ended func()) {
	var client netip.Addr
	if bounded {
		client = c.prefix.Client(peer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bounded && c.byClient[client] >= c.maxPerClient {
		c.greedy.Inc()
		return nil, nil
	}
	if c.all > c.max/4*3 {
		c.makeRoom()
	}
	if c.all >= c.max {
		c.full.Inc()
		return nil, nil
	}
	c.all++
	if bounded {
		c.byClient[client]++
	}
	c.scarce.Store(c.all > c.max/4*3)
	held = c.memory.Holder(conn, client)
	return held, func() {
		held.Hold(0)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		c.scarce.Store(c.all > c.max/4*3)
		if !bounded {
			return
		}
		if c.byClient[client]--; c.byClient[client] == 0 {
			delete(c.byClient, client)
		}
	}
}

// endBy registers functions that end idle connections when connections become scarce.
func (c *connections) endBy(end ...func(refused bool, limit int) (ended int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = append(c.end, end...)
}

// makeRoom ends idle connections: all whose last request was refused, and a few others if the node is
// almost full. mu is held.
func (c *connections) makeRoom() {
	now := time.Now()
	if now.Before(c.endAt) {
		return
	}
	c.endAt = now.Add(endPause)
	few := max(c.max/16, 1)
	for _, end := range c.end {
		c.idle.Add(float64(end(true, c.max)))
		if c.max-c.all < few {
			c.idle.Add(float64(end(false, few)))
		}
	}
}
