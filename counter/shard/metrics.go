package shard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// newMetrics registers the metrics of s, which read its counters for stats.
func newMetrics(s *Server, reg prometheus.Registerer) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	total := func(name, help string, labels prometheus.Labels, value func() float64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	gauge("edge_shard_server_items", "Items in memory, including expired ones that have not been accessed since.", func() float64 { return float64(s.snapshot().items) })
	gauge("edge_shard_server_bytes", "Memory used by items, including overhead.", func() float64 { return float64(s.snapshot().blocks * blockCost) })
	gauge("edge_shard_server_limit_bytes", "Maximum memory for items; beyond it, items are evicted.", func() float64 { return float64(s.options.MaxBytes) })
	gauge("edge_shard_server_connections", "Open connections of clients.", func() float64 { return float64(s.conns.Load()) })
	total("edge_shard_server_connections_refused_total", "Connections refused because there were too many.", nil, func() float64 { return float64(s.rejectedConns.Load()) })
	total("edge_shard_server_evictions_total", "Items evicted before they expired, to make room.", nil, func() float64 { return float64(s.snapshot().counts[evictions]) })

	commands := func(op string, count func() float64) {
		total("edge_shard_server_commands_total", "Commands executed, by kind; a get counts once per key.", prometheus.Labels{"op": op}, count)
	}
	commands("flush", func() float64 { return float64(s.flushes.Load()) })
	for op, counters := range map[string][]counter{
		"get": {getHits, getMisses}, "set": {cmdSet}, "touch": {touchHits, touchMisses},
		"incr": {incrHits, incrMisses}, "decr": {decrHits, decrMisses}, "delete": {deleteHits, deleteMisses},
	} {
		commands(op, func() (n float64) {
			now := s.snapshot()
			for _, of := range counters {
				n += float64(now.counts[of])
			}
			return n
		})
	}
}
