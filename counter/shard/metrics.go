package shard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// newMetrics makes the metrics of s. They read what s counts for stats.
func newMetrics(s *Server, reg prometheus.Registerer) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_shard_server_items",
		Help: "Items held, expired ones that nothing has met since included.",
	}, func() float64 { return float64(s.snapshot().items) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_shard_server_bytes",
		Help: "Memory of the items held, with overhead.",
	}, func() float64 { return float64(s.snapshot().blocks * blockCost) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_shard_server_limit_bytes",
		Help: "Memory that items may take before some are evicted.",
	}, func() float64 { return float64(s.options.MaxBytes) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_shard_server_connections",
		Help: "Open connections of clients.",
	}, func() float64 { return float64(s.conns.Load()) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "edge_shard_server_connections_refused_total",
		Help: "Connections refused because there were too many.",
	}, func() float64 { return float64(s.rejectedConns.Load()) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "edge_shard_server_evictions_total",
		Help: "Live items removed to make room.",
	}, func() float64 { return float64(s.snapshot().counts[evictions]) })

	commands := func(op string, count func(n snapshot) uint64) {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name:        "edge_shard_server_commands_total",
			Help:        "Commands carried out, by kind. A get counts once for each key.",
			ConstLabels: prometheus.Labels{"op": op},
		}, func() float64 { return float64(count(s.snapshot())) })
	}
	commands("get", func(n snapshot) uint64 { return n.counts[getHits] + n.counts[getMisses] })
	commands("set", func(n snapshot) uint64 { return n.counts[cmdSet] })
	commands("touch", func(n snapshot) uint64 { return n.counts[touchHits] + n.counts[touchMisses] })
	commands("incr", func(n snapshot) uint64 { return n.counts[incrHits] + n.counts[incrMisses] })
	commands("decr", func(n snapshot) uint64 { return n.counts[decrHits] + n.counts[decrMisses] })
	commands("delete", func(n snapshot) uint64 { return n.counts[deleteHits] + n.counts[deleteMisses] })
	commands("flush", func(snapshot) uint64 { return uint64(s.flushes.Load()) })
}
