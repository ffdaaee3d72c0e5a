package gossip

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	sent, received prometheus.Counter     // messages
	dropped        prometheus.Counter     // messages
	repeated       prometheus.Counter     // packets
	refused        *prometheus.CounterVec // packets, by cause
	closed         *prometheus.CounterVec // TCP connections, by cause
}

// causes for which packets are refused
const (
	malformed = "malformed" // cannot be decoded
	stranger  = "stranger"  // not from a peer, or not for this run
	replayed  = "replayed"  // received before, or too far behind to know
	late      = "late"      // in transit for too long
	otherKey  = "other_key" // cannot be decrypted
)

func newMetrics(reg prometheus.Registerer, g *Gossip) *metrics {
	f := promauto.With(reg)
	messages := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_gossip_messages_total",
		Help: "Messages between the nodes of the PoP; one sent to several peers counts once per peer.",
	}, []string{"direction"})
	m := &metrics{
		sent:     messages.WithLabelValues("sent"),
		received: messages.WithLabelValues("received"),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_gossip_packets_dropped_total",
			Help: "Messages not sent because too many waited.",
		}),
		repeated: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_gossip_packets_retransmitted_total",
			Help: "Packets sent because another node lacked messages, or to ask for messages.",
		}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_gossip_packets_refused_total",
			Help: "Packets from other nodes that were rejected.",
		}, []string{"cause"}),
		closed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_gossip_connections_refused_total",
			Help: "TCP connections to and from other nodes that were closed because of their number or what they carried.",
		}, []string{"cause"}),
	}
	m.closed.WithLabelValues("too_many")
	m.closed.WithLabelValues("too_large")
	for _, cause := range []string{malformed, stranger, replayed, late, otherKey} {
		m.refused.WithLabelValues(cause)
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_gossip_nodes",
		Help: "Nodes of the PoP that are alive, including this one.",
	}, func() float64 { return float64(len(g.Peers()) + 1) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_clock_offset_seconds",
		Help: "How far this node's clock is ahead of the median of the other nodes' clocks.",
	}, func() float64 { return g.ClockOffset().Seconds() })
	return m
}
