package envoy

import (
	"log/slog"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The causes for which a descriptor cannot be decided.
const (
	causeDomain         = "domain"         // the service is for another one
	causeRule           = "rule"           // it names no rule of the set
	causeCharacteristic = "characteristic" // it lacks the value of one, or has an invalid one
	causeAnswer         = "answer"         // its rule counts by the status of an answer
)

type metrics struct {
	requests  map[rls.RateLimitResponse_Code]prometheus.Counter
	invalid   prometheus.Counter
	undecided map[string]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_envoy_requests_total",
		Help: "Requests of Envoy's rate limit service, by answer.",
	}, []string{"result"})
	undecided := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_envoy_undecided_descriptors_total",
		Help: "Descriptors that were OK because no rule could decide them, by cause.",
	}, []string{"cause"})
	m := &metrics{
		requests: map[rls.RateLimitResponse_Code]prometheus.Counter{
			rls.RateLimitResponse_OK:         requests.WithLabelValues("ok"),
			rls.RateLimitResponse_OVER_LIMIT: requests.WithLabelValues("over_limit"),
		},
		invalid:   requests.WithLabelValues("invalid"),
		undecided: map[string]prometheus.Counter{},
	}
	for _, cause := range []string{causeDomain, causeRule, causeCharacteristic, causeAnswer} {
		m.undecided[cause] = undecided.WithLabelValues(cause)
	}
	return m
}

// complaints log each cause at most once a minute.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (c *complaints) warn(logger *slog.Logger, cause string, why error, domain string, d *ratelimit.RateLimitDescriptor) {
	now := time.Now()
	c.mu.Lock()
	again := now.Sub(c.last[cause]) < time.Minute
	if !again {
		if c.last == nil {
			c.last = map[string]time.Time{}
		}
		c.last[cause] = now
	}
	c.mu.Unlock()
	if again {
		return
	}
	var keys []string // values may be personal data
	for _, e := range d.GetEntries() {
		keys = append(keys, e.GetKey())
	}
	logger.Warn("a descriptor is not limited", "why", why, "domain", domain, "keys", keys)
}
