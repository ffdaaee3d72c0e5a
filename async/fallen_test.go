package async_test

import (
	"fmt"
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
