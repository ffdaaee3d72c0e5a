package pop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics show whether the current files are in force, and connections that do not name their client.
type metrics struct {
	successful prometheus.Gauge
	loaded     prometheus.Gauge

	unixSources prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		successful: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_successful",
			Help: "1 if the current rules files are in force, 0 if they have an error and older rules stay in force.",
		}),
		loaded: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_success_timestamp_seconds",
			Help: "When the rules in force were loaded.",
		}),
	}
	m.unixSources = f.NewCounter(prometheus.CounterOpts{
		Name: "edge_proxy_protocol_unix_total",
		Help: "Connections whose PROXY header has UNIX addresses, which do not identify the client.",
	})
	return m
}

func (m *metrics) reloaded(err error) {
	if err != nil {
		m.successful.Set(0)
		return
	}
	m.successful.Set(1)
	m.loaded.Set(float64(time.Now().Unix()))
}
