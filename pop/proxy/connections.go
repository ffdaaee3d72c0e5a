package proxy

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/pop/rule"
)

// connections bounds the connections of all clients, and of each one. Where they become scarce,
// those go first whose clients were refused.
type connections struct {
	most, ofClient int
	prefix         rule.ClientPrefix

	scarce atomic.Bool // more than three quarters are in use: refusals close their connections

	full, greedy prometheus.Counter // connections that were closed at once
	idle         prometheus.Counter // connections that were closed while they waited

	mu       sync.Mutex // guards what follows
	all      int
	byClient map[netip.Addr]int
	end      []func(refused bool, most int) (ended int)
	endAt    time.Time // when end may be called again
}

// endPause is how often connections that wait are looked for, of which there may be many, to end
// some.
const endPause = 100 * time.Millisecond

func (c *connections) init(o *Options) {
	c.most, c.ofClient, c.prefix, c.byClient = o.Connections, o.ClientConnections, o.Client, map[netip.Addr]int{}
	if c.most == 0 {
		c.most = math.MaxInt
	}
	if c.ofClient == 0 {
		c.ofClient = math.MaxInt
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur < uint64(c.most) {
		c.most = int(files.Cur / 8 * 7) // the rest is for origins and shards
	}
	f := promauto.With(o.Registerer)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_connections",
		Help: "Connections of clients.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.all)
	})
	closed := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_connections_closed_total",
		Help: "Connections of clients that were closed because there were too many: at once, of the node (full) or of the client (client), or while they waited for a request (idle).",
	}, []string{"reason"})
	c.full, c.greedy, c.idle = closed.WithLabelValues("full"), closed.WithLabelValues("client"), closed.WithLabelValues("idle")
}

// add takes in a connection of peer, whose connections are bounded unless it is a proxy for others.
// It returns what to call when the connection has ended, or nil if it has to end now.
func (c *connections) add(peer netip.Addr, bounded bool) (ended func()) {
	r := rule.Request{Addr: peer}
	r.Canonicalize(c.prefix)
	client := r.Client()
	c.mu.Lock()
	defer c.mu.Unlock()
	if bounded && c.byClient[client] >= c.ofClient {
		c.greedy.Inc()
		return nil
	}
	if c.all > c.most/4*3 {
		c.makeRoom()
	}
	if c.all >= c.most {
		c.full.Inc()
		return nil
	}
	c.all++
	if bounded {
		c.byClient[client]++
	}
	c.scarce.Store(c.all > c.most/4*3)
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		c.scarce.Store(c.all > c.most/4*3)
		if !bounded {
			return
		}
		if c.byClient[client]--; c.byClient[client] == 0 {
			delete(c.byClient, client)
		}
	})
}

// EndIdle has end called when connections of clients become scarce: see [http1.Server.EndIdle].
func (p *Proxy) EndIdle(end func(refused bool, most int) (ended int)) {
	c := &p.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = append(c.end, end)
}

// makeRoom ends connections that wait for a request: all of clients that were refused, and if the
// node has hardly any left, a few others. mu is held.
func (c *connections) makeRoom() {
	now := time.Now()
	if now.Before(c.endAt) {
		return
	}
	c.endAt = now.Add(endPause)
	for _, end := range c.end {
		c.idle.Add(float64(end(true, c.most)))
		if c.most-c.all < c.most/16 {
			c.idle.Add(float64(end(false, c.most/16)))
		}
	}
}
