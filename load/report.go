package load

import (
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/load/mix"
)

// A Report is the result of a run. Names that end in _s are in seconds, _ms in milliseconds, _pct
// in percent.
type Report struct {
	Began       time.Time `json:"began"`
	DurationS   float64   `json:"duration_s"`
	Interrupted bool      `json:"interrupted"` // it was stopped early
	Full        bool      `json:"full"`        // it ended early, after the maximum number of requests
	GaveUp      bool      `json:"gave_up"`     // it ended early, because no request was answered
	Targets     []string  `json:"targets"`

	Sending Sending `json:"sending"`

	// Latency is measured from the time when a request was due to the end of its answer, Service
	// from the time when it was sent.
	Latency Latency `json:"latency"`
	Service Latency `json:"service"`

	histogram *hdrhistogram.Histogram // the distribution of Latency

	Statuses   map[string]uint64 `json:"statuses"`                   // responses by status
	Failures   map[string]uint64 `json:"failures,omitempty"`         // requests without a response, by reason
	Examples   map[string]string `json:"failure_examples,omitempty"` // the first error of each kind of failure
	Nodes      []NodeCount       `json:"nodes"`
	Components []ComponentCount  `json:"components"`
	Timeline   Timeline          `json:"timeline"`

	// Score is the judge's result, if rules are given.
	Score *judge.Score `json:"score,omitempty"`
}

// Sending describes what the generator did.
type Sending struct {
	Requests    uint64  `json:"requests"`
	RatePerS    float64 `json:"rate_per_s"`  // from the first request to the last one
	Connections uint64  `json:"connections"` // opened
	Unsent      uint64  `json:"unsent"`      // due before the end, but not sent
	Held        uint64  `json:"held"`        // not sent because their client waited for its Retry-After

	// ClosedReused counts requests without an answer whose connection had carried others: the
	// target may have closed it before it read the request. They are not sent again.
	ClosedReused uint64 `json:"closed_reused"`

	// Late counts requests that were sent more than 10 ms after they were due: OwnLate of them
	// because the generator could not keep up, the others because no connection was free.
	Late    uint64 `json:"late"`
	OwnLate uint64 `json:"own_late"`
	Kept    bool   `json:"kept_rate"` // at most 1% are late or unsent
}

// A Latency is a distribution, in milliseconds.
type Latency struct {
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P90MS  float64 `json:"p90_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p999_ms"`
	MaxMS  float64 `json:"max_ms"`
}

// A NodeCount counts the answers of one node, or of one target if nodes have no names.
type NodeCount struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`

	Latency Latency   `json:"latency"`         // as Report.Latency
	P99MS   []float64 `json:"timeline_p99_ms"` // by step of Report.Timeline; 0 without a response
}

// A ComponentCount counts the outcomes of a part of the traffic.
type ComponentCount struct {
	mix.Component
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
	Failed   uint64 `json:"failed"`
}

// A Timeline has the requests and refusals since the start of the run, in steps of equal length.
type Timeline struct {
	StepS  int64       `json:"step_s"`
	Points []TimePoint `json:"points"`
}

// A TimePoint is one step of a Timeline. Latencies are like Report.Latency, of the requests sent in
// the step; 0 if none was answered.
type TimePoint struct {
	Requests uint64  `json:"requests"`
	Refused  uint64  `json:"refused"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
	MaxMS    float64 `json:"max_ms"`
}

const maxPoints = 240 // of a timeline

// stepOf returns the step of a timeline for a run of this many seconds, a round number of seconds.
func stepOf(length float64) int64 {
	for _, s := range []int64{1, 2, 5, 10, 30, 60, 300, 600, 1800} {
		if int64(length)/s < maxPoints {
			return s
		}
	}
	return 3600
}

// newHistogram returns a histogram of up to an hour in microseconds, with a precision of this many significant digits.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Hour.Microseconds(), digits)
}

// recordIn records a duration, or the nearest one within h's bounds.
func recordIn(h *hdrhistogram.Histogram, micros int64) {
	_ = h.RecordValue(min(max(micros, 1), h.HighestTrackableValue())) // cannot fail within these bounds
}

// latencyOf returns the latencies in h, which may be nil.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h == nil || h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) / 1e3 }
	return Latency{MeanMS: h.Mean() / 1e3, P50MS: at(50), P90MS: at(90), P99MS: at(99), P999MS: at(99.9),
		MaxMS: float64(h.Max()) / 1e3}
}

// WriteLatency writes the distribution of Latency as percentiles in the format of HdrHistogram, in milliseconds.
func (r *Report) WriteLatency(w io.Writer) error {
	if r.histogram.TotalCount() == 0 {
		return nil
	}
	fmt.Fprint(w, "\nLatency percentiles, in milliseconds\n\n")
	_, err := r.histogram.PercentilesPrint(w, 1, 1000)
	return err
}

// A nodeTally collects the counts and latencies of a node.
type nodeTally struct {
	NodeCount
	step, all *hdrhistogram.Histogram // of the current step, and in total; nil until there is an answer
}

func (n *nodeTally) add(micros int64) {
	if n.step == nil {
		n.step, n.all = newHistogram(2), newHistogram(3)
	}
	recordIn(n.step, micros)
	recordIn(n.all, micros)
}

// endStep completes the last point of t, and begins the next step of all and nodes.
func (t *Timeline) endStep(all *hdrhistogram.Histogram, nodes []nodeTally) {
	if len(t.Points) == 0 {
		return
	}
	point, l := &t.Points[len(t.Points)-1], latencyOf(all)
	point.P50MS, point.P99MS, point.MaxMS = l.P50MS, l.P99MS, l.MaxMS
	all.Reset()
	for i := range nodes {
		n := &nodes[i]
		n.P99MS = append(n.P99MS, latencyOf(n.step).P99MS)
		if n.step != nil {
			n.step.Reset()
		}
	}
}

// Report returns the report, without the judge's score.
func (l *Log) Report() *Report {
	r := l.report
	r.Statuses, r.Failures = map[string]uint64{}, map[string]uint64{}
	r.Targets = l.nodes[:len(l.o.Targets)]
	for _, c := range l.components {
		r.Components = append(r.Components, ComponentCount{Component: c})
	}
	nodes := make([]nodeTally, len(l.nodes))
	statuses := map[uint16]uint64{}
	latency, service, step := newHistogram(3), newHistogram(3), newHistogram(2)
	r.Timeline.StepS = stepOf(r.DurationS)
	for i := range l.records {
		q := &l.records[i]
		for int64(len(r.Timeline.Points)) <= q.sent/(r.Timeline.StepS*1e6) {
			r.Timeline.endStep(step, nodes)
			r.Timeline.Points = append(r.Timeline.Points, TimePoint{})
		}
		point := &r.Timeline.Points[len(r.Timeline.Points)-1]
		point.Requests++
		c, n := &r.Components[l.looks[q.look-1].Component], &nodes[q.node]
		c.Requests++
		n.Requests++
		if q.sent-q.due > lateBy.Microseconds() {
			r.Sending.Late++
		}
		if q.refused() {
			c.Refused++
			n.Refused++
			point.Refused++
		}
		if q.failure != judge.Answered {
			r.Failures[failureNames[q.failure]]++
			c.Failed++
			if q.failure == judge.Closed && q.flags&reused != 0 {
				r.Sending.ClosedReused++
			}
			continue
		}
		statuses[q.status]++
		recordIn(latency, q.done-q.due)
		recordIn(step, q.done-q.due)
		n.add(q.done - q.due)
		recordIn(service, q.done-q.sent)
	}
	for status, n := range statuses {
		r.Statuses[fmt.Sprint(status)] = n
	}
	r.Timeline.endStep(step, nodes)
	for i, n := range nodes {
		n.Name, n.Latency = l.nodes[i], latencyOf(n.all)
		if n.Requests > 0 {
			r.Nodes = append(r.Nodes, n.NodeCount)
		}
	}
	r.Latency, r.Service = latencyOf(latency), latencyOf(service)
	r.histogram = latency
	s := &r.Sending
	s.Requests, s.OwnLate = uint64(len(l.records)), min(s.OwnLate, s.Late)
	if n := len(l.records); n > 1 {
		s.RatePerS = float64(n-1) / float64(max(1, l.records[n-1].sent-l.records[0].sent)) * 1e6
	}
	s.Kept = l.o.ClosedLoop || 100*(s.Late+s.Unsent) <= s.Requests+s.Unsent
	return &r
}

// refused reports whether an answer refuses its request. A rule's own body
// distinguishes refusals from answers of the origin: see Options.Bodies.
func (q *record) refused() bool {
	return q.failure == judge.Answered && (q.status == 429 || q.retry > 0 || q.flags&prepared != 0)
}
