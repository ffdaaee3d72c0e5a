package envoy

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Causes of undecided descriptors.
const (
	causeRule           = "rule"           // the descriptor names no rule of the set
	causeCharacteristic = "characteristic" // the value of a characteristic is missing or invalid
	causeHits           = "hits"           // the number of hits is negative
)

var causes = []string{causeRule, causeCharacteristic, causeHits}

type metrics struct {
	requests  map[rls.RateLimitResponse_Code]prometheus.Counter
	invalid   prometheus.Counter
	undecided map[string]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_envoy_requests_total",
		Help: "Requests from Envoy to the rate limit service, by response.",
	}, []string{"result"})
	undecided := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_envoy_undecided_descriptors_total",
		Help: "Descriptors answered OK because no rule could decide them, by cause.",
	}, []string{"cause"})
	m := &metrics{
		requests: map[rls.RateLimitResponse_Code]prometheus.Counter{
			rls.RateLimitResponse_OK:         requests.WithLabelValues("ok"),
			rls.RateLimitResponse_OVER_LIMIT: requests.WithLabelValues("over_limit"),
		},
		invalid:   requests.WithLabelValues("invalid"),
		undecided: map[string]prometheus.Counter{},
	}
	for _, cause := range causes {
		m.undecided[cause] = undecided.WithLabelValues(cause)
	}
	return m
}
