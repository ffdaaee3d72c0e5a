package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/load/judge"
)

// A Report is what a run found. Names that end in _s are seconds, _ms milliseconds, _pct
// percent.
type Report struct {
	Began       time.Time `json:"began"`
	DurationS   float64   `json:"duration_s"`
	Interrupted bool      `json:"interrupted"`   // it was ended before its time
	Full        bool      `json:"full"`          // it ended early with all the requests that it may send
	GaveUp      bool      `json:"gave_up"`       // it was ended early, since nothing was answered
	ClockStepMS float64   `json:"clock_step_ms"` // by how much this machine's clock was set meanwhile
	Targets     []string  `json:"targets"`

	Sending Sending `json:"sending"`

	// Latency is from the moment when a request was due to the end of its answer, Service
	// from the moment when it was sent.
	Latency Latency `json:"latency"`
	Service Latency `json:"service"`

	// Histogram is the distribution of Latency.
	Histogram []Bucket `json:"histogram"`
	histogram *hdrhistogram.Histogram

	Statuses   map[string]uint64 `json:"statuses"`                   // answers by status
	Failures   map[string]uint64 `json:"failures,omitempty"`         // requests without an answer, by what happened
	Examples   map[string]string `json:"failure_examples,omitempty"` // the first error of each kind of failure
	Nodes      []NodeCount       `json:"nodes"`
	Components []ComponentCount  `json:"components"`
	Timeline   Timeline          `json:"timeline"`

	// Score is what the oracle says, where there are rules.
	Score *judge.Score `json:"score,omitempty"`

	// Hints are what may be wrong with the run itself.
	Hints []string `json:"hints,omitempty"`
}

// Sending is what the generator did.
type Sending struct {
	Requests    uint64  `json:"requests"`
	RatePerS    float64 `json:"rate_per_s"`  // from the first request to the last one
	Connections uint64  `json:"connections"` // opened
	Unsent      uint64  `json:"unsent"`      // due before the end, and not sent
	Held        uint64  `json:"held"`        // of clients that waited for their Retry-After

	// ClosedReused are requests without an answer whose connection had carried others: the
	// target may have ended it before it read the request. They are not sent again.
	ClosedReused uint64 `json:"closed_reused"`

	// Late are requests that were sent more than 10 ms after they were due: OwnLate
	// because the generator could not keep up, the others because no connection was free.
	Late    uint64  `json:"late"`
	OwnLate uint64  `json:"own_late"`
	LateP99 float64 `json:"late_p99_ms"`
	Kept    bool    `json:"kept_rate"` // at most 1% are late or unsent
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

// A NodeCount is what came from one node, or from one target where nodes have no names.
type NodeCount struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
}

// A ComponentCount is what became of a part of the traffic.
type ComponentCount struct {
	Component
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
	Failed   uint64 `json:"failed"`
}

// A Timeline is requests and refusals over time since the beginning, in parts of the same
// length.
type Timeline struct {
	StepS  int64       `json:"step_s"`
	Points []TimePoint `json:"points"`
}

// A TimePoint is one part of a Timeline.
type TimePoint struct {
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
}

const mostPoints = 240 // of a timeline

// add counts a request that was sent at a time in microseconds.
func (t *Timeline) add(at int64, refused bool) {
	i := int(at / (t.StepS * 1e6))
	for len(t.Points) <= i {
		t.Points = append(t.Points, TimePoint{})
	}
	t.Points[i].Requests++
	if refused {
		t.Points[i].Refused++
	}
}

// newHistogram returns a histogram of microseconds up to an hour, to a thousandth.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Hour.Microseconds(), 3)
}

// recordIn records a duration, or the nearest that h can hold.
func recordIn(h *hdrhistogram.Histogram, micros int64) {
	_ = h.RecordValue(min(max(micros, 1), h.HighestTrackableValue())) // within its bounds
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{MeanMS: h.Mean() / 1e3, P50MS: at(50), P90MS: at(90), P99MS: at(99), P999MS: at(99.9), MaxMS: float64(h.Max()) / 1e3}
}

// Report says what happened, without the oracle.
func (l *Log) Report() *Report {
	r := &Report{
		Began: l.Began.UTC(), DurationS: l.Elapsed.Seconds(), Interrupted: l.Interrupted, Full: l.Full, GaveUp: l.GaveUp, ClockStepMS: float64(l.ClockStep) / 1e6,
		Statuses: map[string]uint64{}, Failures: map[string]uint64{}, Examples: map[string]string{},
	}
	for f, text := range l.why {
		if text != "" {
			r.Examples[failureNames[f]] = text
		}
	}
	for _, t := range l.o.Targets {
		r.Targets = append(r.Targets, t.Name)
	}
	for _, c := range l.o.Source.Components() {
		r.Components = append(r.Components, ComponentCount{Component: c})
	}
	nodes := make([]NodeCount, len(l.nodes))
	statuses := map[uint16]uint64{}
	latency, service, late := newHistogram(), newHistogram(), newHistogram()
	r.Timeline.StepS = 1 + int64(l.Elapsed/time.Second)/mostPoints
	for i := range l.records {
		q := &l.records[i]
		r.Timeline.add(q.sent, l.refused(q))
		c, n := &r.Components[l.looks[q.look-1].Component], &nodes[q.node]
		c.Requests++
		n.Requests++
		recordIn(late, q.sent-q.due)
		if q.sent-q.due > lateBy.Microseconds() {
			r.Sending.Late++
		}
		if l.refused(q) {
			c.Refused++
			n.Refused++
		}
		if q.failure != answered {
			r.Failures[failureNames[q.failure]]++
			c.Failed++
			if q.failure == closed && q.flags&reused != 0 {
				r.Sending.ClosedReused++
			}
			continue
		}
		statuses[q.status]++
		recordIn(latency, q.done-q.due)
		recordIn(service, q.done-q.sent)
	}
	for status, n := range statuses {
		r.Statuses[fmt.Sprint(status)] = n
	}
	for i, n := range nodes {
		if n.Name = l.nodes[i]; n.Requests > 0 {
			r.Nodes = append(r.Nodes, n)
		}
	}
	r.Latency, r.Service = latencyOf(latency), latencyOf(service)
	r.Histogram, r.histogram = bucketsOf(latency), latency
	r.Hints = r.hints()
	r.Sending = l.sending(r.Sending)
	r.Sending.LateP99 = float64(late.ValueAtQuantile(99)) / 1e3
	return r
}

// sending completes what was counted by record.
func (l *Log) sending(s Sending) Sending {
	s.Requests, s.Connections, s.Unsent, s.Held, s.OwnLate = uint64(len(l.records)), l.Connections, l.Unsent, l.Held, min(l.late, s.Late)
	if n := len(l.records); n > 1 {
		s.RatePerS = float64(n-1) / float64(max(1, l.records[n-1].sent-l.records[0].sent)) * 1e6
	}
	s.Kept = l.o.ClosedLoop || 100*(s.Late+s.Unsent) <= s.Requests+s.Unsent
	return s
}

// refused reports whether an answer refuses its request. What only looks like an answer of
// the origin, or is none, is known from the rules: see Options.Bodies.
func (l *Log) refused(q *record) bool {
	return q.failure == answered && (q.status == 429 || q.retry > 0 || q.flags&prepared != 0)
}
