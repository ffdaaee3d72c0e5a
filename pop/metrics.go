package pop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics say whether the files that a node reads are in force, and whether it agrees with
// the other nodes.
type metrics struct {
	successful prometheus.Gauge
	loaded     prometheus.Gauge
	differ     map[string]prometheus.Gauge // by what they differ in
	inRing     *prometheus.GaugeVec        // by shard
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		differ: map[string]prometheus.Gauge{},
		successful: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_successful",
			Help: "1 if the rules files as they are now are in force, 0 if they have an error and older rules stay.",
		}),
		loaded: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_success_timestamp_seconds",
			Help: "When the rules in force were loaded.",
		}),
	}
	m.inRing = f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "edge_shard_in_ring",
		Help: "1 while the shard owns keys, 0 while it is out of the ring, because most nodes find it down or an operator drains it.",
	}, []string{"shard"})
	differ := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "edge_nodes_differing",
		Help: "Other nodes of the PoP that have had another secret, other shards or other rules for a while, so that counts are split.",
	}, []string{"in"})
	for _, of := range agreements {
		m.differ[of] = differ.WithLabelValues(of)
	}
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
