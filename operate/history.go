package operate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edge/limit"
)

// SampleEvery is the interval of samples of a history.
const SampleEvery = 5 * time.Second

// A Span is one of the two periods of time that a history covers.
type Span struct {
	Name, Words string
	Step        time.Duration
	steps       int
}

// Spans are the periods that a history covers.
var Spans = [...]Span{{"15m", "15 minutes", SampleEvery, 180}, {"24h", "24 hours", 5 * time.Minute, 288}}

// A cell holds the counts of one step.
type cell struct{ counted, refused uint32 }

// A series holds the past counts of one kind. It takes 3.7 KB.
type series struct {
	last  totals             // at the last sample
	cells [len(Spans)][]cell // rings
}

// totals are the values of counters.
type totals struct{ counted, refused float64 }

func newSeries() *series {
	s := new(series)
	for i := range Spans {
		s.cells[i] = make([]cell, Spans[i].steps)
	}
	return s
}

// A History holds past values of a node's metrics. It has a series for each rule that has its own
// counters, so at most 1001, once these have counted something. Its methods may be called concurrently.
type History struct {
	metrics prometheus.Gatherer
	now     func() time.Time

	mu    sync.Mutex         // guards the following
	steps [len(Spans)]int64  // that were sampled last, since the Unix epoch
	all   *series            // all requests, and the refused ones among them
	rules map[string]*series // by ID
	drops *series            // requests that were not counted
	lags  []lag              // the last ones, the oldest first
}

// NewHistory returns an empty history of metrics.
func NewHistory(metrics prometheus.Gatherer, now func() time.Time) *History {
	return &History{metrics: metrics, now: now, all: newSeries(), rules: map[string]*series{}, drops: newSeries()}
}

// A lag is the distribution of the lag of increments since the node's start.
type lag struct {
	upTo   []float64 // seconds
	counts []uint64  // cumulative
	n      uint64
}

// lagSamples is the number of samples of the lag that are kept, which cover a minute.
const lagSamples = int(time.Minute/SampleEvery) + 1

// Run samples the metrics until ctx is done.
func (h *History) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := h.now()
		h.Sample(now)
		timer.Reset(now.Truncate(SampleEvery).Add(SampleEvery).Sub(now))
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
		step := (now.UnixNano() - 1) / int64(s.Step) // what happened before now belongs to the previous step
		if h.steps[i] != 0 {
			h.clear(i, h.steps[i], step)
		}
		h.steps[i] = max(step, h.steps[i])
	}
	var all, drops totals
	rules := map[string]totals{}
	for _, f := range families {
		for _, m := range f.Metric {
			n := m.GetCounter().GetValue()
			name := label(m, "rule")
			rule := rules[name]
			switch f.GetName() {
			case "edge_requests_total":
				all.counted += n
				if limit.Refused(label(m, "verdict")) {
					all.refused += n
					rule.refused += n
					rules[name] = rule
				}
			case "edge_requests_counted_total":
				rule.counted += n
				rules[name] = rule
			case "edge_increments_dropped_total":
				drops.counted += n
			case "edge_counting_lag_seconds":
				h.noteLag(m.GetHistogram())
			}
		}
	}
	delete(rules, "") // refused by the deny list
	h.add(h.all, all)
	h.add(h.drops, drops)
	for name, total := range rules {
		if h.rules[name] == nil && total != (totals{}) {
			h.rules[name] = newSeries()
		}
		if h.rules[name] != nil {
			h.add(h.rules[name], total)
		}
	}
	maps.DeleteFunc(h.rules, func(name string, _ *series) bool {
		_, ok := rules[name]
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

// clear empties the steps after from, up to to. mu is held.
func (h *History) clear(span int, from, to int64) {
	all := append(slices.Collect(maps.Values(h.rules)), h.all, h.drops)
	n := int64(Spans[span].steps)
	for step := max(from+1, to-n+1); step <= to; step++ {
		for _, s := range all {
			s.cells[span][step%n] = cell{}
		}
	}
}

// add adds the growth of a series' counters since the last sample. mu is held.
func (h *History) add(s *series, total totals) {
	grown := func(now, before float64) uint32 {
		if now < before { // the rule was removed, and is back
			before = 0
		}
		return uint32(min(now-before, 1<<32-1))
	}
	counted, refused := grown(total.counted, s.last.counted), grown(total.refused, s.last.refused)
	s.last = total
	for i := range Spans {
		c := &s.cells[i][h.steps[i]%int64(Spans[i].steps)]
		c.counted += min(counted, ^c.counted)
		c.refused += min(refused, ^c.refused)
	}
}

// Steps are the counts of the steps of a span, the oldest first, which begin at From.
type Steps struct {
	From             time.Time
	Counted, Refused []uint64
}

// last returns the last n steps of a span. The current step is included only if the steps are coarse: all fine ones
// are complete. s may be nil. mu is held.
func (h *History) last(s *series, span, n int) (all Steps) {
	size := int64(Spans[span].steps)
	first := h.steps[span] - int64(n) + 1
	all.From = time.Unix(0, first*int64(Spans[span].Step)).UTC()
	for step := first; step <= h.steps[span]; step++ {
		var c cell
		if s != nil {
			c = s.cells[span][(step%size+size)%size]
		}
		all.Counted, all.Refused = append(all.Counted, uint64(c.counted)), append(all.Refused, uint64(c.refused))
	}
	return all
}

// Sampled returns the number of the last sample.
func (h *History) Sampled() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.steps[0]
}

// All returns the requests of a span of Spans, and those among them that were refused.
func (h *History) All(span int) Steps {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last(h.all, span, Spans[span].steps)
}

// Rule returns the requests of a span that a rule counted, and those that it refused.
func (h *History) Rule(id string, span int) Steps {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last(h.rules[id], span, Spans[span].steps)
}

// Rates returns the requests per second in the last step, and those among them that were refused.
func (h *History) Rates() (requests, refused float32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, seconds := h.last(h.all, 0, 1), float32(SampleEvery.Seconds())
	return float32(all.Counted[0]) / seconds, float32(all.Refused[0]) / seconds
}

// RefusedInHour returns the requests that a rule refused in the last hour, in coarse steps.
func (h *History) RefusedInHour(id string) (n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	coarse := len(Spans) - 1
	for _, refused := range h.last(h.rules[id], coarse, int(time.Hour/Spans[coarse].Step)).Refused {
		n += refused
	}
	return n
}

// Dropped returns the number of requests in the shorter span that were not counted.
func (h *History) Dropped() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dropped := range h.last(h.drops, 0, Spans[0].steps).Counted {
		n += int(dropped)
	}
	return n
}

// noteLag adds a sample of the lag. mu is held.
func (h *History) noteLag(now *dto.Histogram) {
	var l lag
	for _, b := range now.GetBucket() {
		l.upTo, l.counts = append(l.upTo, b.GetUpperBound()), append(l.counts, b.GetCumulativeCount())
	}
	l.n = now.GetSampleCount()
	h.lags = append(h.lags, l)
	if len(h.lags) > lagSamples {
		h.lags = slices.Delete(h.lags, 0, 1)
	}
}

// Within returns a quantile of the counting lag over the last minute, with the resolution of the
// buckets: 0 without increments, negative beyond the last bucket.
func (h *History) Within(share float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lags) < 2 {
		return 0
	}
	first, last := &h.lags[0], &h.lags[len(h.lags)-1]
	n := last.n - first.n
	if n == 0 || len(first.counts) != len(last.counts) {
		return 0
	}
	for i, upTo := range last.upTo {
		if float64(last.counts[i]-first.counts[i]) >= share*float64(n) {
			return time.Duration(upTo * float64(time.Second))
		}
	}
	return -1
}
