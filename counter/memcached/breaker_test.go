package memcached_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
)

// A shard that hangs costs a few timeouts, then nothing, until it answers again.
func TestBreaker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		var hangs atomic.Bool
		var asked atomic.Int64
		hangs.Store(true)
		answer := func(line string) string {
			asked.Add(1)
			switch {
			case hangs.Load():
				time.Sleep(time.Second)
				return ""
			case strings.HasPrefix(line, "get"):
				return "END\r\n"
			}
			return "1\r\n"
		}
		s := memcached.New("s:1", wire.Options{
			Dial: scripted(t, answer), Timeout: 50 * time.Millisecond, Failures: 3, Metrics: wire.NewMetrics(reg),
		})
		defer s.Close()
		start := time.Now()
		for i := range 20 {
			_, err := one(s, "k", 1, 60)
			want := counter.ErrUnknown
			if i >= 3 {
				want = counter.ErrNotSent
			}
			if !errors.Is(err, want) {
				t.Errorf("Count %d: %v, want %v", i, err, want)
			}
		}
		if took := time.Since(start); took != 150*time.Millisecond || asked.Load() != 3 {
			t.Errorf("20 counts took %v and asked %d times, want 3 timeouts of 50ms", took, asked.Load())
		}
		if s.Available() || !s.Down() {
			t.Errorf("Available = %t and Down = %t while the breaker is open", s.Available(), s.Down())
		}
		if err := s.Probe(); !errors.Is(err, counter.ErrNotSent) {
			t.Errorf("Probe while the breaker is open: %v, want ErrNotSent", err)
		}
		if open := testutil.ToFloat64(gauge(t, reg, "edge_shard_breaker_open")); open != 1 {
			t.Errorf("edge_shard_breaker_open = %v, want 1", open)
		}
		hangs.Store(false)
		time.Sleep(251 * time.Millisecond)
		if !s.Available() || !s.Down() {
			t.Errorf("Available = %t and Down = %t after the pause, want both true until a probe succeeds", s.Available(), s.Down())
		}
		if err := s.Probe(); err != nil || s.Down() {
			t.Errorf("Probe after the shard answers again: %v, and Down = %t", err, s.Down())
		}
		if n, err := one(s, "k", 1, 60); err != nil || n != 1 {
			t.Errorf("Count after the shard answers again: %d, %v", n, err)
		}
		want := `
# HELP edge_increments_total Increments for counter shards, by result: ok, not_sent (sent later), absent (the counter was evicted; sent again), refused (the shard is out of memory), unknown (no reply; not repeated).
# TYPE edge_increments_total counter
edge_increments_total{result="absent"} 0
edge_increments_total{result="not_sent"} 17
edge_increments_total{result="ok"} 1
edge_increments_total{result="refused"} 0
edge_increments_total{result="unknown"} 3
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edge_increments_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		time.Sleep(time.Second) // the scripted connections end
	})
}

// A hidden shard disappears from the metrics, even if its client is still used, until there is another client.
func TestHide(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := wire.Options{
		Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no such machine") },
		Failures: 1, Metrics: wire.NewMetrics(reg),
	}
	s := memcached.New("s:1", o)
	series := func(want int) {
		t.Helper()
		if got, err := testutil.GatherAndCount(reg, "edge_shard_breaker_open", "edge_shard_request_duration_seconds"); got != want || err != nil {
			t.Errorf("%d series, %v; want %d", got, err, want)
		}
	}
	series(1 + 4)
	for range 2 {
		s.Hide()
	}
	if s.Probe() == nil || !s.Down() {
		t.Error("a shard that cannot be reached is not down")
	}
	series(0)
	memcached.New("s:1", o)
	series(1 + 4)
	if open := testutil.ToFloat64(gauge(t, reg, "edge_shard_breaker_open")); open != 0 {
		t.Errorf("edge_shard_breaker_open = %v, want 0", open)
	}
}

// gauge returns the only series of a metric, as it is now.
func gauge(t *testing.T, g prometheus.Gatherer, name string) prometheus.Collector {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			v := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
			v.Set(f.GetMetric()[0].GetGauge().GetValue())
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}
