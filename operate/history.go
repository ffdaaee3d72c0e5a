package operate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edge/limit"
)

// SampleEvery is the interval between samples of a history.
const SampleEvery = 5 * time.Second

// A Span is one of the two periods of time that a history covers.
type Span struct {
	Name, Words string
	Step        time.Duration
	steps       int
}

// Spans are the periods that a history covers.
var Spans = [...]Span{{"15m", "15 minutes", SampleEvery, 180}, {"24h", "24 hours", 5 * time.Minute, maxSteps}}

// maxSteps is the greatest number of steps of a Span.
const maxSteps = 288

// A cell holds the counts of one step, since the Unix epoch.
type cell struct{ step, counted, refused uint32 }

// A series holds the past counts of one kind. It takes 6.9 KB.
type series struct {
	last  totals                     // at the last sample
	cells [len(Spans)][maxSteps]cell // ring buffers, indexed by step
}

// totals are the values of counters.
type totals struct{ counted, refused float64 }

// Names of series in addition to the IDs of rules, which begin with a letter or digit.
const (
	allRequests = "*"
	notCounted  = "-"
)

// A History holds past values of a node's metrics. It has a series for each rule with counters of its own that have
// counted something, so at most 1001. Its methods may be called concurrently.
type History struct {
	metrics prometheus.Gatherer
	now     func() time.Time

	mu    sync.Mutex         // guards the following
	steps [len(Spans)]int64  // the steps of the last sample, since the Unix epoch
	all   map[string]*series // by name
	lags  []*dto.Histogram   // the last samples of the counting lag, each since the node's start, the oldest first
}

// NewHistory returns an empty history of metrics.
func NewHistory(metrics prometheus.Gatherer, now func() time.Time) *History {
	return &History{metrics: metrics, now: now, all: map[string]*series{}}
}

// lagSamples is the number of samples of the lag that a History keeps. They cover a minute.
const lagSamples = int(time.Minute/SampleEvery) + 1

// Run samples the metrics until ctx is done.
func (h *History) Run(ctx context.Context) {
	for ctx.Err() == nil {
		now := h.now()
		h.Sample(now)
		select {
		case <-ctx.Done():
		case <-time.After(now.Truncate(SampleEvery).Add(SampleEvery).Sub(now)):
		}
	}
}

// Sample adds the metrics at now. Run calls it.
func (h *History) Sample(now time.Time) {
	families, err := h.metrics.Gather()
	if err != nil {
		return // the metrics endpoint reports the error
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range Spans {
		// At a boundary, the counts belong to the step that has ended.
		h.steps[i] = max((now.UnixNano()-1)/int64(s.Step), h.steps[i])
	}
	sums := map[string]totals{}
	add := func(name string, counted, refused float64) {
		t := sums[name]
		sums[name] = totals{t.counted + counted, t.refused + refused}
	}
	for _, f := range families {
		for _, m := range f.Metric {
			n := m.GetCounter().GetValue()
			switch rule := label(m, "rule"); f.GetName() {
			case "edge_requests_total":
				refused := 0.0
				if limit.Refused(label(m, "verdict")) {
					refused = n
				}
				add(allRequests, n, refused)
				add(rule, 0, refused)
			case "edge_requests_counted_total":
				add(rule, n, 0)
			case "edge_increments_dropped_total":
				add(notCounted, n, 0)
			case "edge_counting_lag_seconds":
				h.lags = append(h.lags, m.GetHistogram())
				h.lags = h.lags[max(0, len(h.lags)-lagSamples):]
			}
		}
	}
	delete(sums, "") // refused by the deny list
	for name, total := range sums {
		if h.all[name] == nil && total != (totals{}) {
			h.all[name] = new(series)
		}
		if h.all[name] != nil {
			h.grow(h.all[name], total)
		}
	}
	maps.DeleteFunc(h.all, func(name string, _ *series) bool {
		_, ok := sums[name]
		return !ok // the rule was removed
	})
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// grow adds the growth of a series' counters since the last sample. mu must be held.
func (h *History) grow(s *series, total totals) {
	grown := func(now, before float64) uint32 {
		if now < before { // the rule was removed and added again
			before = 0
		}
		return uint32(min(now-before, 1<<32-1))
	}
	counted, refused := grown(total.counted, s.last.counted), grown(total.refused, s.last.refused)
	s.last = total
	for i, step := range h.steps {
		c := &s.cells[i][step%maxSteps]
		if c.step != uint32(step) {
			*c = cell{step: uint32(step)}
		}
		c.counted += min(counted, ^c.counted)
		c.refused += min(refused, ^c.refused)
	}
}

// Steps are the counts of the steps of a span, the oldest first. The first one begins at From.
type Steps struct {
	From             time.Time
	Counted, Refused []uint64
}

// Sums returns the sums over all steps.
func (s Steps) Sums() (counted, refused uint64) {
	for i := range s.Counted {
		counted, refused = counted+s.Counted[i], refused+s.Refused[i]
	}
	return counted, refused
}

// last returns the last n steps of a series in a span. The last step may be incomplete if the span's steps are longer
// than SampleEvery.
func (h *History) last(name string, span, n int) (all Steps) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.steps[span] - int64(n) + 1
	all.From = time.Unix(0, first*int64(Spans[span].Step)).UTC()
	for step := first; step <= h.steps[span]; step++ {
		var c cell
		at := uint64(step) % maxSteps
		if s := h.all[name]; s != nil && s.cells[span][at].step == uint32(step) {
			c = s.cells[span][at]
		}
		all.Counted, all.Refused = append(all.Counted, uint64(c.counted)), append(all.Refused, uint64(c.refused))
	}
	return all
}

// Sampled returns the step of the last sample.
func (h *History) Sampled() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.steps[0]
}

// All returns the requests in Spans[span], and the refused ones among them.
func (h *History) All(span int) Steps { return h.Rule(allRequests, span) }

// Rule returns the requests in Spans[span] that a rule counted, and those that it refused.
func (h *History) Rule(id string, span int) Steps { return h.last(id, span, Spans[span].steps) }

// Rates returns the requests per second in the last step, and the refused ones among them.
func (h *History) Rates() (requests, refused float32) {
	all, seconds := h.last(allRequests, 0, 1), float32(SampleEvery.Seconds())
	return float32(all.Counted[0]) / seconds, float32(all.Refused[0]) / seconds
}

// RefusedInHour returns the number of requests that a rule refused in the last hour, rounded to coarse steps.
func (h *History) RefusedInHour(id string) uint64 {
	coarse := len(Spans) - 1
	_, refused := h.last(id, coarse, int(time.Hour/Spans[coarse].Step)).Sums()
	return refused
}

// Dropped returns the number of requests in the shorter span that were not counted.
func (h *History) Dropped() uint64 {
	dropped, _ := h.Rule(notCounted, 0).Sums()
	return dropped
}

// Within returns a quantile of the counting lag in the last minute, with the resolution of the buckets. It is 0 if
// there were no increments, and negative if it is beyond the last bucket.
func (h *History) Within(share float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lags) < 2 {
		return 0
	}
	first, last := h.lags[0], h.lags[len(h.lags)-1]
	n := last.GetSampleCount() - first.GetSampleCount()
	if n == 0 || len(first.Bucket) != len(last.Bucket) {
		return 0
	}
	for i, b := range last.Bucket {
		if float64(b.GetCumulativeCount()-first.Bucket[i].GetCumulativeCount()) >= share*float64(n) {
			return time.Duration(b.GetUpperBound() * float64(time.Second))
		}
	}
	return -1
}
