package limit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/limit"
)

// A testPop is several limiters that share shards, connected by pipes.
type testPop struct {
	limiters   []*limit.Limiter
	shards     []*testShard
	registries []*prometheus.Registry // of the limiters
	secret     counter.Secret
	timeout    time.Duration // of clients of shards; 0 for the default
	cancel     context.CancelFunc
	running    sync.WaitGroup // shards
	limited    sync.WaitGroup // limiters
}

// A testShard can be killed, which loses its contents. It can also lose replies, or hold them back.
type testShard struct {
	gate   gate
	mu     sync.Mutex
	loses  bool
	random *rand.Rand
	pipe   *shard.Pipe
	conns  []net.Conn
	cancel context.CancelFunc
}

func (s *testShard) start(running *sync.WaitGroup) {
	server := shard.New(shard.Options{})
	var ctx context.Context
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, s.cancel = context.WithCancel(context.Background())
	s.pipe = shard.NewPipe()
	pipe := s.pipe
	running.Go(func() { _ = server.Serve(ctx, pipe) })
}

func (s *testShard) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	_ = s.pipe.Close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

func (s *testShard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.pipe.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, conn)
	return s.gate.through(&lossyConn{conn, s}), nil
}

// A lossyConn is the limiter's end of a connection to a shard.
type lossyConn struct {
	net.Conn
	shard *testShard
}

// Read loses one reply in four and its connection, if the shard is set to lose replies.
func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if err == nil && c.shard.loses && c.shard.random.IntN(4) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// startPop runs this many limiters and shards. Limiters publish mitigations to each other if peers
// is set.
func startPop(tb testing.TB, limiters, shards int, peers bool, rules string) *testPop {
	tb.Helper()
	set := parse(tb, rules)
	secret, err := counter.NewSecret("a secret of the property")
	if err != nil {
		tb.Fatal(err)
	}
	p := &testPop{secret: secret}
	for i := range shards {
		s := &testShard{random: rand.New(rand.NewPCG(uint64(i), 1))}
		s.start(&p.running)
		p.shards = append(p.shards, s)
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	for i := range limiters {
		table := mitigation.New(mitigation.Options{Size: 1024})
		registry := prometheus.NewRegistry()
		p.registries = append(p.registries, registry)
		o := limit.Options{
			Secret: secret, Node: mitigation.NodeID(i + 1), Rules: set, Table: table, Registerer: registry,
			Queue: 1024, TrackedKeys: 1024, Drain: time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		for j := range p.shards {
			o.Shards = append(o.Shards, p.clients(j)...)
		}
		if peers {
			o.Publish = func(r mitigation.Record) {
				now := time.Now()
				packet := r.AppendSent(nil, now)
				for j, other := range p.limiters {
					if received, err := mitigation.ParseSent(packet, now); err == nil && j != i {
						other.Learn(received, "peer", now)
					}
				}
			}
		}
		l, err := limit.New(o, nil)
		if err != nil {
			tb.Fatal(err)
		}
		p.limiters = append(p.limiters, l)
	}
	for _, l := range p.limiters {
		p.limited.Go(func() { l.Run(ctx) })
	}
	return p
}

func (p *testPop) stop() {
	p.cancel()
	for _, s := range p.shards {
		s.kill()
	}
	p.limited.Wait()
	p.running.Wait()
}

// clients returns new clients of shards, given by index.
func (p *testPop) clients(shards ...int) (clients []count.Shard) {
	for _, i := range shards {
		clients = append(clients, memcached.New(fmt.Sprintf("s%d:11211", i), memcached.Options{Dial: p.shards[i].dial, Timeout: p.timeout}))
	}
	return clients
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// check is rapid.Check with half as many cases by default: each is a whole run of a PoP, and each run of the test draws
// new ones.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		t.Cleanup(func() { _ = checks.Value.Set(checks.DefValue) })
		_ = checks.Value.Set("50")
	}
	rapid.Check(t, property)
}

// waitFor polls ok in real time until it returns true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, what, 2*time.Minute, time.Millisecond, ok)
}

// increment adds to one counter, without a limiter.
func increment(s *memcached.Client, item counter.Item, delta uint64) (uint64, error) {
	b := memcached.Batch{Increments: []memcached.Increment{{Item: item, Delta: delta, TTL: 125, Make: true}}}
	err := s.Exchange(&b)
	return b.Increments[0].Value, err
}

// dialNobody fails to connect.
func dialNobody(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("connection refused")
}
