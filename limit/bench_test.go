package limit_test

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

const oneRule = `
rules:
  - id: login
    match: {hosts: [example.com], methods: [POST], paths: [/login]}
    characteristics: [ip]
    limits: [{threshold: 1000000000, period: 1m}]
`

// closedRule fails closed.
var closedRule = strings.Replace(oneRule, "characteristics", "on_failure: closed\n    characteristics", 1)

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

// mitigate adds a record of the ith client to the table.
func mitigate(tb testing.TB, l *limit.Limiter, table *mitigation.Table, secret counter.Secret, i uint32, now time.Time) {
	tb.Helper()
	req := request(i)
	req.Canonicalize(rule.ClientPrefix{IPv4: 32, IPv6: 64})
	r := l.Rules().Rules()[0]
	what, _ := r.AppendKey(nil, &req)
	table.Merge(mitigation.Record{Key: secret.Tag(what), Rule: r.Fingerprint(), Start: now.UnixMicro(), Why: exceeded,
		Lifetime: time.Hour, Deadline: now.Add(time.Hour)}, now)
}

// runLimiter runs l until the benchmark ends.
func runLimiter(tb testing.TB, l *limit.Limiter) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, logged := range []bool{false, true} {
		l, table, secret := newLimiter(t, oneRule)
		if logged {
			l.LogTo(logOf(t, secret, 1e-9)) // without these clients
		}
		now := time.Now()
		mitigate(t, l, table, secret, 1, now)
		for i, want := range []limit.Verdict{limit.Passed, limit.Blocked} {
			if n := testing.AllocsPerRun(1000, func() {
				req := request(uint32(i))
				if d := l.Decide(&req, now); d.Verdict != want {
					t.Fatalf("client %d is %v, want %v", i, d.Verdict, want)
				}
			}); n != 0 {
				t.Errorf("Decide allocates %v times for a client that is %v, want 0 (with a decision log: %t)", n, want, logged)
			}
		}
	}
}

// logOf returns a decision log that runs until the test ends.
func logOf(tb testing.TB, secret counter.Secret, share float64) *decision.Log {
	tb.Helper()
	log := decision.New(decision.Options{File: filepath.Join(tb.TempDir(), "decisions"), Size: 256 << 20, Node: "n1", Secret: secret, Share: share, Now: time.Now})
	if err := log.Open(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { log.Run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
	return log
}

func BenchmarkDecide(b *testing.B) {
	b.Run("unavailable", func(b *testing.B) {
		l, _, _ := newLimiter(b, closedRule, deadShards(b, 3)...)
		now := time.Now()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := uint32(0); pb.Next(); i++ {
				req := request(i)
				if d := l.Decide(&req, now); d.Verdict != limit.Unavailable {
					b.Fatal(d.Verdict)
				}
			}
		})
	})
	for name, share := range map[string]float64{"mitigated": 0, "mitigated with a decision log": 1e-9, "mitigated in the decision log": 1} {
		b.Run(name, func(b *testing.B) {
			l, table, secret := newLimiter(b, oneRule)
			if share > 0 {
				l.LogTo(logOf(b, secret, share))
			}
			now := time.Now()
			mitigate(b, l, table, secret, 1, now)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req := request(1)
					if d := l.Decide(&req, now); d.Verdict != limit.Blocked {
						b.Fatal(d.Verdict)
					}
				}
			})
		})
	}
	for name, clients := range map[string]uint32{"passed/one client": 1, "passed/10000 clients": 10_000, "passed with a decision log": 1} {
		b.Run(name, func(b *testing.B) {
			l, table, secret := newLimiter(b, oneRule)
			if name == "passed with a decision log" {
				l.LogTo(logOf(b, secret, 1e-9))
			}
			now := time.Now()
			for i := range uint32(1000) {
				mitigate(b, l, table, secret, 1<<20+i, now)
			}
			runLimiter(b, l)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := uint32(0); pb.Next(); i++ {
					req := request(i % clients)
					if d := l.Decide(&req, now); d.Verdict != limit.Passed {
						b.Fatal(d.Verdict)
					}
				}
			})
		})
	}
}
