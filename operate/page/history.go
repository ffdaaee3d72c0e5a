package page

import (
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edge/limit"
)

// sampleEvery is the interval of samples.
const sampleEvery = 5 * time.Second

// A span is one of the two periods of time that the history covers.
type span struct {
	name, words string
	step        time.Duration
	steps       int
}

var spans = [...]span{{"15m", "15 minutes", sampleEvery, 180}, {"24h", "24 hours", 5 * time.Minute, 288}}

// A cell holds the counts of one step.
type cell struct{ counted, refused uint32 }

// A series holds the past counts of one kind. It takes 3.7 KB.
type series struct {
	last  totals             // at the last sample
	cells [len(spans)][]cell // rings
}

// totals are the values of counters.
type totals struct{ counted, refused float64 }

func newSeries() *series {
	s := new(series)
	for i := range spans {
		s.cells[i] = make([]cell, spans[i].steps)
	}
	return s
}

// A history holds past values of a node's metrics. It has a series for each rule that has its own
// counters, so at most 1001, once these have counted something.
type history struct {
	steps [len(spans)]int64 // that were sampled last, since the Unix epoch
	all   *series           // all requests, and the refused ones among them
	rules map[string]*series
	drops *series // requests that were not counted

	lags []lag // the last ones, the oldest first
}

func newHistory() history {
	return history{all: newSeries(), rules: map[string]*series{}, drops: newSeries()}
}

// A lag is the distribution of the lag of increments since the node's start.
type lag struct {
	upTo   []float64 // seconds
	counts []uint64  // cumulative
	n      uint64
}

// lagSamples is the number of samples of the lag that are kept, which cover a minute.
const lagSamples = int(time.Minute/sampleEvery) + 1

// sample adds the current values of the metrics.
func (h *history) sample(families []*dto.MetricFamily, now time.Time) {
	for i, s := range spans {
		step := (now.UnixNano() - 1) / int64(s.step) // what happened before now belongs to the previous step
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
			of := rules[name]
			switch f.GetName() {
			case "edge_requests_total":
				all.counted += n
				if limit.Refused(label(m, "verdict")) {
					all.refused += n
					of.refused += n
					rules[name] = of
				}
			case "edge_requests_counted_total":
				of.counted += n
				rules[name] = of
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
	for name := range h.rules {
		if _, ok := rules[name]; !ok { // the rule was removed
			delete(h.rules, name)
		}
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// clear empties the steps after from, up to to.
func (h *history) clear(span int, from, to int64) {
	all := append(slices.Collect(maps.Values(h.rules)), h.all, h.drops)
	n := int64(spans[span].steps)
	for step := max(from+1, to-n+1); step <= to; step++ {
		for _, s := range all {
			s.cells[span][step%n] = cell{}
		}
	}
}

// add adds the growth of a series' counters since the last sample.
func (h *history) add(s *series, total totals) {
	grown := func(now, before float64) uint32 {
		if now < before { // the rule was removed, and is back
			before = 0
		}
		return uint32(min(now-before, 1<<32-1))
	}
	counted, refused := grown(total.counted, s.last.counted), grown(total.refused, s.last.refused)
	s.last = total
	for i := range spans {
		c := &s.cells[i][h.steps[i]%int64(spans[i].steps)]
		c.counted += min(counted, ^c.counted)
		c.refused += min(refused, ^c.refused)
	}
}

// of returns the steps of a span, oldest first, and when they begin. The current step is included only
// if the steps are coarse: all fine ones are complete.
func (h *history) of(s *series, span int) (from time.Time, counted, refused []uint64) {
	n := int64(spans[span].steps)
	for step := h.steps[span] - n + 1; step <= h.steps[span]; step++ {
		c := s.cells[span][(step%n+n)%n]
		counted, refused = append(counted, uint64(c.counted)), append(refused, uint64(c.refused))
	}
	return time.Unix(0, (h.steps[span]-n+1)*int64(spans[span].step)).UTC(), counted, refused
}

func (h *history) noteLag(of *dto.Histogram) {
	var l lag
	for _, b := range of.GetBucket() {
		l.upTo, l.counts = append(l.upTo, b.GetUpperBound()), append(l.counts, b.GetCumulativeCount())
	}
	l.n = of.GetSampleCount()
	h.lags = append(h.lags, l)
	if len(h.lags) > lagSamples {
		h.lags = slices.Delete(h.lags, 0, 1)
	}
}

// within returns the time within which a share of the increments of the last minute were counted, with
// the resolution of the buckets. It is 0 if there were no increments, and negative if it is beyond the
// last bucket.
func (h *history) within(share float64) time.Duration {
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
