package operate_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/operate"
)

// A history has each count in the step in which it was made, once, even if a counter falls or a step takes the cell of
// an earlier one. The lag is that of the last minute.
func TestHistory(t *testing.T) {
	reg := prometheus.NewRegistry()
	counted := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_counted_total", Help: "-"}, []string{"rule"})
	lag := promauto.With(reg).NewHistogram(prometheus.HistogramOpts{Name: "edge_counting_lag_seconds", Help: "-", Buckets: []float64{.01, 1}})
	h := operate.NewHistory(reg, nil)
	begin := time.Unix(1_800_000_000, 0)
	now := begin
	sample := func(n float64) {
		counted.WithLabelValues("a").Add(n)
		now = now.Add(operate.SampleEvery)
		h.Sample(now)
	}
	expect := func(when string, want ...uint64) { // the counts of the last steps
		t.Helper()
		for span, s := range operate.Spans {
			all := h.Rule("a", span)
			if span == 0 && !all.From.Add(time.Duration(len(all.Counted))*s.Step).Equal(now) {
				t.Errorf("%s, the steps begin at %v, want that the last one ends at %v", when, all.From, now)
			}
			sum, _ := all.Sums()
			var total uint64
			for i, n := range want {
				if total += n; span == 0 && all.Counted[len(all.Counted)-len(want)+i] != n {
					t.Errorf("%s, the last counts are %v, want %v", when, all.Counted[len(all.Counted)-len(want):], want)
				}
			}
			if sum != total {
				t.Errorf("%s, the sum of %s is %d, want %d", when, s.Name, sum, total)
			}
		}
	}
	sample(10)
	lag.Observe(.5)
	expect("at the end of a step", 10)
	counted.Reset()
	sample(3)
	expect("after the counter fell", 10, 3)
	for range 11 {
		sample(0)
	}
	if got := h.Within(1); got != time.Second {
		t.Errorf("after a minute, the lag is %v, want 1s", got)
	}
	if sample(0); h.Within(1) != 0 {
		t.Errorf("after more than a minute, the lag is %v, want 0", h.Within(1))
	}
	now = begin.Add(24 * time.Hour) // in the cells of both spans that have the counts
	sample(5)
	expect("a day later", 5)
}
