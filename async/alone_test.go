package async_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A node whose shards are all down counts alone, and recovers.
func TestCountingAlone(t *testing.T) {
	m := harness.StartMemcached(t)
	table := mitigation.New(mitigation.Options{})
	reg := prometheus.NewRegistry()
	s := memcached.New(m.Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	l, err := limit.New(limit.Options{
		Rules: parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1h}]}]"), Table: table,
		Shards: []async.Shard{s}, Logger: slog.New(slog.DiscardHandler), Registerer: reg,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	runLimiter(t, l)
	alone := func() float64 { return value(t, reg, "edge_counting_alone", "") }
	waitFor(t, "the first count", func() bool { return ask(l, 1) > 0 })
	if alone() != 0 {
		t.Error("the node counts alone although a shard answers")
	}
	m.Kill()
	known := 0
	waitFor(t, "the node to notice", func() bool { known = ask(l, 1); return alone() == 1 })
	waitFor(t, "more counts", func() bool { return ask(l, 1) > known+10 })
	// New clients are limited, too.
	waitFor(t, "a mitigation", func() bool {
		req := request(2)
		return l.Decide(&req, time.Now()).Verdict == limit.Blocked
	})
	m.Restart()
	waitFor(t, "the shard to be found", func() bool { return alone() == 0 })
	waitFor(t, "what waited to be sent", func() bool {
		return value(t, reg, "edge_increments_dropped_total", "") == 0 && ask(l, 1) > known+10
	})
	if err := l.SetOut(m.Addr); err != nil {
		t.Error(err)
	}
	waitFor(t, "the node to count alone with its only shard out", func() bool { return alone() == 1 })
	if err := l.SetOut(); err != nil {
		t.Error(err)
	}
	waitFor(t, "the shard to be in again", func() bool { return alone() == 0 })
}
