package async_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A relay is an address with several servers behind it, like a Kubernetes Service or a name with several
// addresses: each connection goes to the next server.
type relay struct {
	addr  string
	mute  bool // stats is answered with an error
	mu    sync.Mutex
	turns int        // guarded by mu
	conns []net.Conn // guarded by mu
}

func startRelay(t *testing.T, mute bool, servers ...string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: ln.Addr().String(), mute: mute}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); r.cut(); wg.Wait() })
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			server := servers[r.turns%len(servers)]
			r.turns++
			r.conns = append(r.conns, near)
			r.mu.Unlock()
			wg.Go(func() { r.serve(near, server) })
		}
	})
	return r
}

// serve relays a connection to a server until one of them closes it.
func (r *relay) serve(near net.Conn, server string) {
	defer near.Close()
	far, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	defer far.Close()
	back.Go(func() {
		_, _ = io.Copy(near, far)
		near.Close()
	})
	lines := bufio.NewReader(near)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		to := io.Writer(far)
		if r.mute && line == "stats\r\n" {
			to, line = near, "ERROR\r\n"
		}
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
	}
}

// connections returns the number of connections made.
func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turns
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.conns = nil
}

// An instance is a limiter that counts at an address, over several connections at the same time.
type instance struct {
	*limit.Limiter
	t       *testing.T
	metrics *memcached.Metrics
	reg     *prometheus.Registry
	clients uint32
	asked   float64 // requests
}

func countAt(t *testing.T, addr string, clients uint32) *instance {
	t.Helper()
	table := mitigation.New(mitigation.Options{})
	c := &instance{t: t, reg: prometheus.NewRegistry(), clients: clients}
	var err error
	c.metrics = memcached.NewMetrics(c.reg)
	c.Limiter, err = limit.New(limit.Options{
		Rules: parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 168h}]}]"),
		Table: table, Shards: []async.Shard{c.shard(addr)}, Logger: slog.New(slog.DiscardHandler), Registerer: c.reg,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	runLimiter(t, c.Limiter)
	return c
}

func (c *instance) shard(addr string) *memcached.Client {
	s := memcached.New(addr, memcached.Options{Timeout: 10 * time.Second, Metrics: c.metrics})
	c.t.Cleanup(func() { s.Close() })
	return s
}

// ask sends n requests of each client, each round after all earlier ones are counted.
func (c *instance) ask(n int) {
	c.t.Helper()
	for range n {
		for client := range c.clients {
			ask(c.Limiter, client)
			c.asked++
		}
		c.wait()
	}
}

// wait waits until all requests are counted or unknown.
func (c *instance) wait() {
	c.t.Helper()
	waitFor(c.t, "requests to be counted", func() bool {
		return value(c.t, c.reg, "edge_increments_total", "ok")+value(c.t, c.reg, "edge_increments_total", "unknown") == c.asked
	})
}

// wantKnown sends another request of each client, and fails unless the number of known earlier ones is from
// least to most.
func (c *instance) wantKnown(least, most int) {
	c.t.Helper()
	for client := range c.clients {
		c.asked++
		if known := ask(c.Limiter, client); known < least || known > most {
			c.t.Errorf("%d requests of client %d are known, want %d to %d", known, client, least, most)
		}
	}
	c.wait()
}

// Two servers behind one address each have a share of a count, whichever answers. If they cannot be distinguished,
// the greater count is used, and what the node sent itself.
func TestTwoInstancesAtOneAddress(t *testing.T) {
	for name, mute := range map[string]bool{"known": false, "indistinguishable": true} {
		t.Run(name, func(t *testing.T) {
			one, other := harness.StartMemcached(t), harness.StartMemcached(t)
			r := startRelay(t, mute, one.Addr, other.Addr)
			c := countAt(t, r.addr, 32)
			c.ask(20)
			r.cut() // the next connection leads to the other one
			c.ask(20)
			if r.connections() < 2 {
				t.Fatal("all requests were counted over one connection")
			}
			c.wantKnown(40, 40)
		})
	}
}

// Counts of another node at the two servers are added up, too. The node must distinguish the servers, because
// its own requests are fewer.
func TestTwoInstancesAtOneAddressOfTwoNodes(t *testing.T) {
	one, other := harness.StartMemcached(t), harness.StartMemcached(t)
	r := startRelay(t, false, one.Addr, other.Addr)
	c, peer := countAt(t, r.addr, 1), countAt(t, r.addr, 1)
	for range 3 { // each time at the other instance
		c.ask(10)
		r.cut()
		peer.ask(30)
		c.ask(10)
		r.cut()
	}
	c.ask(10)
	r.cut()
	c.ask(10)
	// Each closed connection may lose a count of each node.
	c.wantKnown(80+90-14, 80+90)
}

// One server with two addresses has one share: a shard's address is spelled differently.
func TestOneInstanceAtTwoAddresses(t *testing.T) {
	m := harness.StartMemcached(t)
	c := countAt(t, m.Addr, 8)
	c.ask(40)
	if err := c.SetShards([]async.Shard{c.shard(strings.Replace(m.Addr, "127.0.0.1", "localhost", 1))}); err != nil {
		t.Fatal(err)
	}
	c.ask(10)
	c.wantKnown(50, 50)
}

// If a counter starts again on the same connection, or at an instance that has restarted, its value is added to
// the known count. On a new connection to an unidentified server it may be another counter: the greater count
// is used, and what the node sent since.
func TestFallingValue(t *testing.T) {
	for _, tt := range []struct {
		name        string
		mute        bool
		anew        func(*harness.Memcached)
		least, most int
	}{
		{"evicted", false, func(m *harness.Memcached) { flush(t, m.Addr) }, 60, 60},
		{"evicted at a server without stats", true, func(m *harness.Memcached) { flush(t, m.Addr) }, 60, 60},
		// A closed connection may lose the first count.
		{"restarted", false, (*harness.Memcached).Restart, 59, 60},
		{"restarted without stats", true, (*harness.Memcached).Restart, 40, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := harness.StartMemcached(t)
			r := startRelay(t, tt.mute, m.Addr)
			other := countAt(t, r.addr, 1)
			c := countAt(t, r.addr, 1)
			other.ask(20)
			c.ask(10)
			c.wantKnown(30, 30)
			tt.anew(m)
			other.ask(20)
			c.ask(9)
			c.wantKnown(tt.least, tt.most)
		})
	}
}

// flush removes all items of a server.
func flush(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "flush_all\r\n"); err != nil {
		t.Fatal(err)
	}
	if reply, err := bufio.NewReader(conn).ReadString('\n'); reply != "OK\r\n" {
		t.Fatalf("flush_all: %q, %v", reply, err)
	}
}
