package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/operate"
)

// The nodes of a PoP are processes with their own shards. They find each other's shards and count together, and
// continue when a node is killed together with its shard. A node that restarts knows the mitigations when it is
// ready. Gossip keys are replaced while the nodes run.
func TestProcesses(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, fiftyAnHour, ownShards...)
	inRing := func(s operate.Shard) bool { return s.InRing && !s.Down }
	p.shardsAre("all shards are in the ring", 3, inRing)
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		if passed := p.exceed(client, 51); passed < 51 {
			t.Errorf("%d requests of %s passed at three nodes, want 51", passed, client)
		}
	}
	learned := 0.0
	for _, n := range p.nodes {
		learned += value(t, metrics(t, n.metrics), "edge_mitigations_learned_total", "source", "peer")
	}
	if learned < 3 {
		t.Errorf("%v mitigations were learned from peers, want at least 3", learned)
	}

	killed := p.nodes[2]
	killed.Kill()
	p.nodes = p.nodes[:2]
	// At first each node counts the keys of the dead shard alone.
	for _, client := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"} {
		p.exceed(client, 2*51)
	}
	p.shardsAre("the other shards are in the ring", 2, inRing)
	p.nodes = append(p.nodes, nil)
	p.start(2)
	p.nodes[2].ready(t)
	if got := p.nodes[2].statusFor("192.0.2.1"); got != http.StatusTooManyRequests {
		t.Errorf("a restarted node answers %d, want %d", got, http.StatusTooManyRequests)
	}
	if got := value(t, metrics(t, p.nodes[2].metrics), "edge_mitigations_learned_total", "source", "shard"); got != 0 {
		t.Errorf("%v mitigations were learned from a shard, want 0", got)
	}
	p.whole()

	for _, keys := range []string{gossipKey(1) + gossipKey(2), gossipKey(2) + gossipKey(1), "# the new one\n" + gossipKey(2)} {
		replace(t, p.keys, keys)
		mark := make([]int, len(p.nodes))
		for i, n := range p.nodes {
			mark[i] = n.Stderr.Len()
			n.Signal(syscall.SIGHUP)
		}
		for i, n := range p.nodes {
			n.WaitSince(n.Stderr, mark[i], `rules loaded`)
		}
	}
	p.nodes = append(p.nodes, nil)
	p.start(3)
	p.whole() // with a node that has only the new key
	for _, n := range p.nodes {
		n.Terminate()
	}
}

// Shards are killed and restarted, and stopped and continued, under load. No innocent client is refused, no
// request fails, and mitigated clients stay mitigated. Clients that attack meanwhile are refused, before or after a
// change of the ring: each change lets a client use up the threshold at most once more.
func TestShardsComeAndGo(t *testing.T) {
	t.Parallel()
	for name, startShard := range map[string]func(t *testing.T) (breakable, string){
		"memcached":            func(t *testing.T) (breakable, string) { m := harness.StartMemcached(t); return m, m.Addr },
		"Redis":                func(t *testing.T) (breakable, string) { r := harness.StartRedis(t); return r, "redis://" + r.Addr },
		"Redis with a replica": func(t *testing.T) (breakable, string) { r := newPair(t); return r, "redis://" + r.addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var shards []breakable
			var addrs []string
			for range 3 {
				s, addr := startShard(t)
				shards, addrs = append(shards, s), append(addrs, addr)
			}
			testShardsComeAndGo(t, shards, addrs)
		})
	}
}

// A breakable is a server that a test breaks.
type breakable interface {
	Kill()
	Restart()
	Stall()
	Resume()
}

// A pair is a Redis with a replica, which takes over when the primary is killed: an address moves to it, as with a
// name or a virtual address. It has lost what had not been replicated.
type pair struct {
	t    *testing.T
	addr string

	mu               sync.Mutex // guards the fields below
	primary, replica *harness.Server
}

func newPair(t *testing.T) *pair {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, addr: ln.Addr().String(), primary: startRedis(t)}
	p.replicate()
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go p.pass(conn)
		}
	}()
	return p
}

// startRedis starts a Redis that does not wait for further replicas before it sends its data to one.
func startRedis(t *testing.T, args ...string) *harness.Server {
	return harness.StartRedis(t, append(args, "--repl-diskless-sync-delay", "0")...)
}

// replicate starts a replica of the primary.
func (p *pair) replicate() {
	host, port, _ := net.SplitHostPort(p.primary.Addr)
	p.replica = startRedis(p.t, "--replicaof", host+" "+port)
	harness.Until(p.t, "the replica has the primary's data", harness.Patience, 5*time.Millisecond, func() bool {
		return strings.Contains(p.replica.Run("INFO", "replication"), "master_link_status:up")
	})
}

// pass connects conn to the primary.
func (p *pair) pass(conn net.Conn) {
	defer conn.Close()
	p.mu.Lock()
	addr := p.primary.Addr
	p.mu.Unlock()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

func (p *pair) Kill()   { p.primary.Kill() }
func (p *pair) Stall()  { p.primary.Stall() }
func (p *pair) Resume() { p.primary.Resume() }

// Restart makes the replica the primary.
func (p *pair) Restart() {
	p.replica.Run("REPLICAOF", "NO", "ONE")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.primary = p.replica
	p.replicate()
}

func testShardsComeAndGo(t *testing.T, shards []breakable, addrs []string) {
	p := startProcesses(t, 3, fiftyAnHour, addrs...)
	p.exceed("192.0.2.66", 51)

	var failed, refused, leaked atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i, n := range p.nodes {
		load.Go(func() {
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for request := 0; ; request++ {
				select {
				case <-stop:
					return
				case <-pause.C:
				}
				switch n.statusFor(innocent(i, request)) {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					failed.Add(1)
				}
				if n.statusFor("192.0.2.66") != http.StatusTooManyRequests {
					leaked.Add(1)
				}
			}
		})
	}
	for round := range 4 {
		m, addr := shards[round%len(shards)], addrs[round%len(shards)]
		p.shardsAre("the shard is back", 3, func(s operate.Shard) bool { return s.Addr != addr || !s.Down && s.InRing })
		attacker := fmt.Sprintf("198.51.100.%d", round)
		const before = 40
		for i := range before {
			if status := p.nodes[i%len(p.nodes)].statusFor(attacker); status != http.StatusOK {
				t.Fatalf("%s got status %d", attacker, status)
			}
		}
		kill := round%2 == 0
		if kill {
			m.Kill()
		} else {
			m.Stall()
		}
		if round >= 2 {
			p.shardsAre("the shard leaves the ring", 3, func(s operate.Shard) bool { return s.InRing == (s.Addr != addr) })
		}
		// Each node counts the shard's keys alone until another shard owns them.
		p.exceed(attacker, (len(p.nodes)+1)*51-before)
		if kill {
			m.Restart()
		} else {
			m.Resume()
		}
	}
	close(stop)
	load.Wait()
	if failed.Load()+refused.Load()+leaked.Load() > 0 {
		t.Errorf("%d requests failed, %d of innocent clients were refused, %d of a mitigated one passed; want none", failed.Load(), refused.Load(), leaked.Load())
	}
}

// innocent returns the client of a sender's nth request. Forty requests of each client are innocent, whether counts
// are lost or not.
func innocent(sender, n int) string { return fmt.Sprintf("10.%d.%d.%d", sender, n/40/250, n/40%250) }

// A front gives connections to nodes in turn, and to the next one if a node does not accept.
type front struct {
	mu    sync.Mutex // guards the fields below
	nodes []*node    // nil if the node must not be asked
	next  int
}

// set replaces the ith node.
func (f *front) set(i int, n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[i] = n
}

// dial connects to a node.
func (f *front) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	nodes := slices.Clone(f.nodes)
	f.next++
	first := f.next
	f.mu.Unlock()
	for i := range nodes {
		if n := nodes[(first+i)%len(nodes)]; n != nil {
			if conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.http); err == nil {
				return conn, nil
			}
		}
	}
	return nil, errors.New("no node accepts")
}

// Every node is stopped and restarted, one after the other, under load over keep-alive connections. No request
// fails, and no mitigation is lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, fiftyAnHour)
	clients := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
	for _, client := range clients {
		p.exceed(client, 51)
	}
	f := &front{nodes: slices.Clone(p.nodes)}
	var load sync.WaitGroup
	var failed, refused atomic.Int64
	stop := make(chan struct{})
	for i := range 8 {
		load.Go(func() {
			transport := &http.Transport{DialContext: f.dial}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: patience}
			// Some clients pause between requests, so their connections are idle for a while.
			tick := time.NewTicker(time.Duration(20+i*i*i) * time.Millisecond)
			defer tick.Stop()
			for request := 0; ; request++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				// The client does not retry a POST when its connection ends.
				r, err := http.NewRequest("POST", "http://pop/", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Forwarded-For", innocent(i, request))
				resp, err := client.Do(r)
				if err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					refused.Add(1)
				}
				resp.Body.Close()
			}
		})
	}
	for i := range p.nodes {
		p.nodes[i].Signal(syscall.SIGTERM)
		eventually(t, "the node is no longer ready", func() bool {
			a, err := try(http.DefaultClient, "http://"+p.nodes[i].metrics+"/readyz")
			return err != nil || strings.Contains(a.body, "the node is stopping")
		})
		f.set(i, nil)
		if code := p.nodes[i].End(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		p.start(i)
		p.nodes[i].ready(t)
		for _, client := range clients {
			if got := p.nodes[i].statusFor(client); got != http.StatusTooManyRequests {
				t.Errorf("node %d, just ready, answers %s with %d", i+1, client, got)
			}
		}
		p.whole()
		f.set(i, p.nodes[i])
	}
	close(stop)
	load.Wait()
	if failed.Load()+refused.Load() > 0 {
		t.Errorf("%d requests failed and %d were not answered with 200; want none", failed.Load(), refused.Load())
	}
}
