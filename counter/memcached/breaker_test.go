package memcached_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
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

// A shard that dies without closing its connections costs one batch or update, not one for each idle connection. Close
// closes all of them.
func TestOneFailureClosesAllConnections(t *testing.T) {
	for name, fail := range map[string]func(*memcached.Client) error{
		"batch":  func(s *memcached.Client) error { return s.Exchange(increments("k", 1, false)) },
		"update": func(s *memcached.Client) error { return s.Update(counter.Item([]byte(named("k"))), keepRecord) },
	} {
		bubble.Test(t, func(t *testing.T) {
			var dialed, open, dead atomic.Int64
			s := memcached.New("s:1", wire.Options{Timeout: 50 * time.Millisecond, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				n := dialed.Add(1)
				conn, err := scripted(t, func(line string) string {
					if n <= dead.Load() {
						time.Sleep(time.Second)
						return ""
					}
					time.Sleep(time.Millisecond)
					if strings.HasPrefix(line, "get") {
						return "END\r\n"
					}
					return "1\r\n"
				})(ctx, network, addr)
				open.Add(1)
				return &closingConn{Conn: conn, open: &open}, err
			}})
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if err := s.Exchange(increments("k", 1, false)); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			if err := s.Update(counter.Item([]byte(named("k"))), keepRecord); err != nil || dialed.Load() != 3 {
				t.Errorf("%s: %v; %d connections, want 3", name, err, dialed.Load())
			}
			dead.Store(3)
			if err := fail(s); !errors.Is(err, counter.ErrUnknown) {
				t.Errorf("%s: %v from a dead shard", name, err)
			}
			if err := s.Exchange(increments("k", 1, false)); err != nil {
				t.Errorf("%s: the batch after that fails: %v", name, err)
			}
			if err := s.Update(counter.Item([]byte(named("k"))), keepRecord); name == "update" && err != nil {
				t.Errorf("the update after that fails: %v", err)
			}
			if _ = s.Close(); open.Load() != 0 {
				t.Errorf("%s: after Close, %d connections are open", name, open.Load())
			}
			time.Sleep(2 * time.Second) // the scripted connections end
		})
	}
}

func keepRecord([]byte) ([]byte, int32) { return nil, 0 }

// A closingConn is counted as open until it is closed.
type closingConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *closingConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// A shard is unfit while its last answer shows that it is no memcached, and not after it failed or answered well.
func TestUnfitUntilTheNextAnswer(t *testing.T) {
	answer, refuse := "", false
	s := memcached.New("s:1", wire.Options{Failures: 100, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuse {
			return nil, errors.New("refused")
		}
		return scripted(t, func(string) string { return answer })(ctx, network, addr)
	}})
	defer s.Close()
	for i, then := range []struct {
		answer        string
		refuse, unfit bool
	}{{"garbage\r\n", false, true}, {"", true, false}, {"garbage\r\n", false, true}, {"1\r\n", false, false}} {
		answer, refuse = then.answer, then.refuse
		if err := s.Exchange(increments("k", 1, false)); (err == nil) != (answer == "1\r\n") || (s.Unfit() != nil) != then.unfit {
			t.Errorf("exchange %d: %v; unfit: %v, want %t", i+1, err, s.Unfit(), then.unfit)
		}
		if err := s.Update(counter.Item([]byte(named("k"))), keepRecord); refuse && !errors.Is(err, counter.ErrNotSent) {
			t.Errorf("update %d: %v, want ErrNotSent: nobody listens", i+1, err)
		}
	}
}

// A record that disappears while it is updated is created again.
func TestUpdateOfAVanishingRecord(t *testing.T) {
	var asked []string
	s := memcached.New("s:1", wire.Options{Timeout: 10 * time.Second, Dial: scripted(t, func(line string) string {
		asked = append(asked, strings.Fields(line)[0])
		return map[int]string{1: "VALUE ................ 0 1 7\r\na\r\nEND\r\n", 2: "NOT_FOUND\r\n", 3: "END\r\n", 4: "STORED\r\n"}[len(asked)]
	})})
	defer s.Close()
	err := s.Update(counter.Item([]byte("................")), func([]byte) ([]byte, int32) { return []byte("b"), 60 })
	if got, want := strings.Join(asked, " "), "gets cas gets add"; err != nil || got != want {
		t.Errorf("Update: %v after %s, want %s", err, got, want)
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
