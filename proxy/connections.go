package proxy

import (
	"cmp"
	"io"
	"math"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/proxy/conns"
)

// connections bounds the connections of each client and of all clients.
type connections struct {
	max    int
	scarce atomic.Bool // more than three quarters are in use: refusals close their connections
	places *conns.Budget
	memory *conns.Budget // for incomplete headers, handshakes and frames
}

func newConnections(o *Options) *connections {
	c := &connections{max: cmp.Or(o.Connections, math.MaxInt)}
	perClient := o.ClientConnections
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && uint64(files.Cur) < uint64(c.max) {
		c.max = int(files.Cur / 8 * 7) // the rest is for origins and shards
		if o.ClientConnections > c.max/2 {
			perClient = c.max / 2 // one client must not use all connections
		}
	}
	f := promauto.With(o.Registerer)
	closed := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_connections_closed_total",
		Help: "Client connections closed because the node (full) or the client (client) had too many, or because those " +
			"of the node (memory) or the client (client_memory) held too many bytes of incomplete headers.",
	}, []string{"reason"})
	budget := func(most, perClient int, ofAll, ofClient string) *conns.Budget {
		all, client := closed.WithLabelValues(ofAll), closed.WithLabelValues(ofClient)
		return conns.NewBudget(most, perClient, func(isOfClient bool) {
			if isOfClient {
				client.Inc()
			} else {
				all.Inc()
			}
		})
	}
	c.places = budget(c.max, perClient, "full", "client")
	c.memory = budget(o.HeaderMemory, o.ClientHeaderMemory, "memory", "client_memory").Beside(c.places)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_connections",
		Help: "Open client connections.",
	}, func() float64 { return float64(c.places.Bytes()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_header_memory_bytes",
		Help: "Memory of incomplete headers, handshakes and frames of clients.",
	}, func() float64 { return float64(c.memory.Bytes()) })
	return c
}

// addConnection counts a connection of peer. It returns the holder of the connection's memory, and a function to call
// once when the connection has ended. Only the bounds for all clients apply to trusted proxies and to peers on Unix
// sockets, which have no valid address.
func (p *Proxy) addConnection(conn io.Closer, peer netip.Addr) (held *conns.Holder, ended func()) {
	c := p.connections
	place := c.places.Holder(conn, p.clientAt(peer))
	held = place.Beside(c.memory)
	place.Hold(1)
	c.noteScarcity()
	return held, func() {
		held.Hold(0)
		place.Hold(0)
		c.noteScarcity()
	}
}

// MakeRoom closes the oldest connection of the client that has the most, because the process can open no more files:
// each request that waits for an origin may need a second one.
func (p *Proxy) MakeRoom() { p.connections.places.Relieve() }

// clientAt returns the client at peer. It is invalid if only the bounds for all clients apply to peer.
func (p *Proxy) clientAt(peer netip.Addr) (client netip.Addr) {
	if peer.IsValid() && !p.trusted.Contains(peer) {
		client = p.o.Client.Client(peer)
	}
	return client
}

func (c *connections) noteScarcity() { c.scarce.Store(c.places.Bytes() > c.max/4*3) }
