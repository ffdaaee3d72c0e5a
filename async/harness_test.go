package async_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
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
func (p *testPop) clients(shards ...int) (clients []async.Shard) {
	for _, i := range shards {
		clients = append(clients, memcached.New(fmt.Sprintf("s%d:11211", i), wire.Options{Dial: p.shards[i].dial, Timeout: p.timeout}))
	}
	return clients
}

// parse returns the rules of a file.
func parse(tb testing.TB, text string) *rule.Set {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func newLimiter(tb testing.TB, rules string, shards ...async.Shard) (*limit.Limiter, *mitigation.Table, counter.Secret) {
	tb.Helper()
	table := mitigation.New(mitigation.Options{})
	secret, err := counter.NewSecret("a secret of the benchmarks")
	if err != nil {
		tb.Fatal(err)
	}
	l, err := limit.New(limit.Options{Secret: secret, Rules: parse(tb, rules), Table: table, Shards: shards, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l, table, secret
}

// request returns a request of the ith client.
func request(i uint32) rule.Request {
	return rule.Request{
		Addr:   netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
		Method: "POST", Host: "example.com", Path: "/login",
	}
}

// exceeded is an estimate that exceeds every rule of the tests.
var exceeded = mitigation.Why{Limit: counter.Limit{Threshold: 1, Period: 1e6, Layout: counter.Plain}, Cur: rule.MaxThreshold + 1}

// runLimiter runs l until the benchmark ends.
func runLimiter(tb testing.TB, l *limit.Limiter) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
}

const oneRule = `
rules:
  - id: login
    match: {hosts: [example.com], methods: [POST], paths: [/login]}
    characteristics: [ip]
    limits: [{threshold: 1000000000, period: 1m}]
`

// value returns the sum of a metric's series that have a label with this value; for a histogram,
// the number of observations.
func value(tb testing.TB, g prometheus.Gatherer, name, label string) (sum float64) {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := label == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetValue() == label
			}
			if f.GetName() == name && matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// withIDs returns a file of rules with these IDs, each for its own host.
func withIDs(ids ...string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, id := range ids {
		fmt.Fprintf(&b, "  - {id: %s, match: {hosts: [%s.example]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n", id, id)
	}
	return b.String()
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
	b := counter.Batch{Increments: []counter.Increment{{Item: item, Delta: delta, TTL: 125, Create: true}}}
	err := s.Exchange(&b)
	return b.Increments[0].Value, err
}

// dialNobody fails to connect.
func dialNobody(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("connection refused")
}
