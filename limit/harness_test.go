package limit_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A testPop is several limiters that count in the same shards, connected by pipes.
type testPop struct {
	limiters   []*limit.Limiter
	registries []*prometheus.Registry // of the limiters
	secret     counter.Secret
	pipes      []*shard.Pipe // of the shards: a closed one accepts no connections
	stop       func()
}

// startPop runs this many limiters and shards. Limiters publish mitigations to each other.
func startPop(tb testing.TB, limiters, shards int, rules string) *testPop {
	tb.Helper()
	secret, err := counter.NewSecret("a secret of the tests")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	p := &testPop{secret: secret, stop: func() { cancel(); running.Wait() }}
	for range shards {
		pipe, server := shard.NewPipe(), shard.New(shard.Options{})
		p.pipes = append(p.pipes, pipe)
		running.Go(func() { _ = server.Serve(ctx, pipe) })
	}
	for i := range limiters {
		o := limit.Options{
			Secret: secret, Node: mitigation.NodeID(i + 1), Rules: parse(tb, rules), Table: mitigation.New(mitigation.Options{Size: 1024, ID: secret.ID}),
			Registerer: prometheus.NewRegistry(), Queue: 1024, TrackedKeys: 1024, Logger: slog.New(slog.DiscardHandler),
		}
		for j, pipe := range p.pipes {
			o.Shards = append(o.Shards, memcached.New(fmt.Sprintf("s%d:11211", j), wire.Options{Dial: pipe.Dial}))
		}
		o.Publish = func(r mitigation.Record) {
			now := time.Now()
			received, err := mitigation.ParseSent(r.AppendSent(nil, now), now)
			for j, other := range p.limiters {
				if err == nil && j != i {
					other.Learn(received, "peer", now)
				}
			}
		}
		l, err := limit.New(o, nil)
		if err != nil {
			tb.Fatal(err)
		}
		p.limiters, p.registries = append(p.limiters, l), append(p.registries, o.Registerer.(*prometheus.Registry))
	}
	for _, l := range p.limiters {
		running.Go(func() { l.Run(ctx) })
	}
	return p
}
