package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	decision  prometheus.Histogram
	origin    prometheus.Histogram
	failed    map[string]prometheus.Counter
	undecided map[string]prometheus.Counter
	withheld  prometheus.Counter
}

// Reasons why a question from another proxy gets no decision.
const (
	undecidedPeer  = "untrusted"
	undecidedField = "incomplete"
)

// Reasons why a client did not get the origin's answer.
const (
	reasonOrigin  = "unreachable"
	reasonTimeout = "timeout"
	reasonClient  = "client"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		decision: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "edge_decision_duration_seconds",
			Help:    "Duration of decisions, sampled from about one request in 64.",
			Buckets: []float64{100e-9, 250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 100e-6, 1e-3},
		}),
		origin: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "edge_origin_response_seconds",
			Help:    "Time until the origin began its response.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		undecided: by(f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_check_undecided_total",
			Help: "Queries from other proxies that got no decision, because their address is not trusted or they do not " +
				"describe a request.",
		}, []string{"reason"}), undecidedPeer, undecidedField),
		withheld: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_responses_withheld_total",
			Help: "Responses of the origin that clients did not get because a rule that counts responses mitigated their " +
				"key meanwhile.",
		}),
		failed: by(f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_origin_failures_total",
			Help: "Requests that passed but got no response from their origin, by reason.",
		}, []string{"reason"}), reasonOrigin, reasonTimeout, reasonClient),
	}
}

// by returns the counters of vector by the value of its label. It creates all of them, so that they begin at 0.
func by(vector *prometheus.CounterVec, values ...string) map[string]prometheus.Counter {
	all := map[string]prometheus.Counter{}
	for _, value := range values {
		all[value] = vector.WithLabelValues(value)
	}
	return all
}
