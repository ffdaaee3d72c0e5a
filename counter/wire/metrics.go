package wire

import (
	"github.com/edgelimit/edge/counter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of a node's shards.
type Metrics struct {
	increments [counter.Unknown + 1]prometheus.Counter // by outcome
	malformed  prometheus.Counter
	seconds    *prometheus.HistogramVec
	open       *prometheus.GaugeVec
}

// NewMetrics registers the metrics with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	increments := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_increments_total",
		Help: "Increments for counter shards, by result: ok, not_sent (sent later), absent (the counter was evicted; " +
			"sent again), refused (the shard is out of memory), unknown (no reply; not repeated).",
	}, []string{"result"})
	return &Metrics{
		increments: [...]prometheus.Counter{
			counter.Done:    increments.WithLabelValues("ok"),
			counter.NotSent: increments.WithLabelValues("not_sent"),
			counter.Absent:  increments.WithLabelValues("absent"),
			counter.Refused: increments.WithLabelValues("refused"),
			counter.Unknown: increments.WithLabelValues("unknown"),
		},
		malformed: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_shard_malformed_replies_total",
			Help: "Invalid replies from counter shards.",
		}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edge_shard_request_duration_seconds",
			Help:    "Duration of round trips to counter shards, by operation. They never delay a request.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1},
		}, []string{"shard", "op"}),
		open: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edge_shard_breaker_open",
			Help: "1 while the counter shard has failed and gets only occasional probes.",
		}, []string{"shard"}),
	}
}

// Malformed counts an invalid reply.
func (m *Metrics) Malformed() { m.malformed.Inc() }

// series are the metrics of one shard.
type series struct {
	seconds map[string]prometheus.Observer // by operation
	open    prometheus.Gauge
}

// of returns the series of a shard.
func (m *Metrics) of(addr string) *series {
	s := &series{map[string]prometheus.Observer{}, m.open.WithLabelValues(addr)}
	for _, op := range []string{"batch", "add", "get", "cas"} {
		s.seconds[op] = m.seconds.WithLabelValues(addr, op)
	}
	return s
}
