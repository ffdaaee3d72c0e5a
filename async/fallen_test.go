package async_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A shard that restarts loses its counters. The node notices that their values fell, for whole windows and
// sub-windows, counts that in a metric, and keeps its own counts.
func TestRestartedShardIsNoticed(t *testing.T) {
	for _, subWindows := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d sub-windows", subWindows), func(t *testing.T) {
			m := harness.StartMemcached(t)
			table := mitigation.New(mitigation.Options{})
			reg := prometheus.NewRegistry()
			s := memcached.New(m.Addr, wire.Options{Timeout: 10 * time.Second})
			defer s.Close()
			l, err := limit.New(limit.Options{
				Rules: parse(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 168h, sub_windows: %d}]}]", subWindows)),
				Table: table, Shards: []async.Shard{s}, Logger: slog.New(slog.DiscardHandler), Registerer: reg,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			runLimiter(t, l)
			fallen := func() float64 { return value(t, reg, "edge_counters_fallen_total", "") }
			known := 0
			waitFor(t, "20 requests to be counted", func() bool { known = ask(l, 1); return known >= 20 })
			if n := fallen(); n != 0 {
				t.Errorf("%v counters fell before the test began", n)
			}
			m.Kill()
			m.Restart()
			waitFor(t, "the shard to be asked again, and its restart to be noticed", func() bool { return ask(l, 1) > known+5 && fallen() > 0 })
		})
	}
}

// A fullShard has no room for counters, and does not evict any.
type fullShard struct{ async.Shard }

func (s fullShard) Exchange(b *counter.Batch) error {
	err := s.Shard.Exchange(&counter.Batch{Stores: b.Stores, Reads: b.Reads})
	for i := range b.Increments {
		b.Increments[i].Outcome = counter.Refused
	}
	return err
}

// What a full shard refuses to count is lost like what a restarted one forgets. It counts once for each window.
func TestFullShardIsNoticed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 60, "0s"), func(o *limit.Options, _ *mitigation.Options) {
			o.Shards[0] = fullShard{o.Shards[0]}
		})
		defer a.close()
		for minute := range 2 {
			for range 5 {
				a.decide(1)
				a.decide(2)
				time.Sleep(time.Second)
			}
			if n, want := value(t, a.reg, "edge_counters_fallen_total", ""), float64(2*minute+2); n != want {
				t.Errorf("%v counters have lost counts, want %v", n, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
