package pop

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/pop/proxy"
)

// Problems with what surrounds a node, as edge_surroundings_problem names them. Those that the proxy
// notices are its own.
const (
	problemNoHeader = "missing_proxy_header"
	problemJoin     = "gossip_join"
	problemNoShard  = "no_live_shard"
	problemTwins    = "same_name"
)

// noticePause is the least time between two warnings of a problem: clients can cause some, and end them.
const noticePause = time.Minute

// notices are the problems that a node has noticed in its surroundings. Each is logged once, until it
// has passed.
type notices struct {
	logger *slog.Logger
	now    func() time.Time
	gauge  *prometheus.GaugeVec

	mu     sync.Mutex           // guards what follows
	open   map[string]string    // what to say, by problem
	warned map[string]time.Time // the last warning, by problem
	hushed map[string]bool      // problems that are not logged, since they come and go
}

func newNotices(logger *slog.Logger, now func() time.Time, reg prometheus.Registerer) *notices {
	n := &notices{logger: logger, now: now, open: map[string]string{}, warned: map[string]time.Time{}, hushed: map[string]bool{}, gauge: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "edge_surroundings_problem",
		Help: "1 while the node notices a problem with proxies, nodes or shards around it, which its log and /readyz describe.",
	}, []string{"problem"})}
	for _, problem := range append(proxy.Problems(), problemNoHeader, problemJoin, problemNoShard, problemTwins) {
		n.gauge.WithLabelValues(problem)
	}
	return n
}

// note notes a problem, or with an empty text that it has passed.
func (n *notices) note(problem, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.open[problem]
	switch {
	case text == "" && known:
		delete(n.open, problem)
		n.gauge.WithLabelValues(problem).Set(0)
		if !n.hushed[problem] {
			n.logger.Info("a problem has passed", "problem", problem)
		}
	case text != "":
		n.gauge.WithLabelValues(problem).Set(1)
		now := n.now()
		if !known || n.hushed[problem] { // one that stays after it came and went is logged, too
			if n.hushed[problem] = now.Sub(n.warned[problem]) < noticePause; !n.hushed[problem] {
				n.warned[problem] = now
				n.logger.Warn(text, "problem", problem)
			}
		}
		n.open[problem] = text
	}
}

// details returns what operators should know, in a stable order.
func (n *notices) details() (details []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range n.open {
		details = append(details, text)
	}
	slices.Sort(details)
	return details
}

// joinPatience is how long a node tries to join its PoP before it says that it cannot: nodes that start
// together wait for each other.
const joinPatience = 10 * time.Second

// joined notes what became of an attempt to join a node while there is no other.
func (n *Node) joined(addr string, err error) {
	if err == nil {
		n.notices.note(problemJoin, "")
		return
	}
	if n.peering.running(n.o.Now()) >= joinPatience {
		n.notices.note(problemJoin, fmt.Sprintf("cannot join the PoP at %s, so that this node knows no other: check the address, and that all nodes have the same gossip key (%v)", addr, err))
	}
}
