package pop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics say whether the files that a node reads are in force.
type metrics struct {
	successful prometheus.Gauge
	loaded     prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		successful: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_successful",
			Help: "1 if the rules files as they are now are in force, 0 if they have an error and older rules stay.",
		}),
		loaded: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_success_timestamp_seconds",
			Help: "When the rules in force were loaded.",
		}),
	}
}

func (m *metrics) reloaded(err error) {
	if err != nil {
		m.successful.Set(0)
		return
	}
	m.successful.Set(1)
	m.loaded.Set(float64(time.Now().Unix()))
}
