package pop

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/proxy"
)

// Problems with a node's environment, as named in edge_environment_problem. The proxy detects others, and
// names them itself.
const (
	problemNoHeader     = "missing_proxy_header"
	problemJoin         = "gossip_join"
	problemNoShard      = "no_live_shard"
	problemShard        = "shard_unusable"
	problemNotShared    = "no_shared_shard"
	problemNameConflict = "same_name"
	problemClock        = "clock"
	problemMaxNodes     = "max_nodes"
	problemSubWindows   = "sub_windows"
	problemLostCounts   = "lost_counts"
	problemCertificate  = "certificate"
)

// Sections of docs/problems.md about other things that readiness reports.
const (
	problemReload = "reload"
	problemBehind = "counting_behind"
	problemDiffer = "nodes_differ"
)

// see names the section of the documentation about a problem.
func see(problem string) string { return "; see docs/problems.md#" + problem }

// noticePause is the minimum time between two warnings about a problem, because clients can cause and end some
// problems.
const noticePause = time.Minute

// notices holds the problems with the node's environment. Each is logged once until it has passed.
type notices struct {
	logger *slog.Logger
	now    func() time.Time
	gauge  *prometheus.GaugeVec

	mu  sync.Mutex // guards the fields below
	all map[string]*notice
}

// A notice is the state of a problem.
type notice struct {
	text   string    // description; empty if the problem has passed
	warned time.Time // time of the last warning
	hushed bool      // not logged, because the problem is flapping
}

func newNotices(logger *slog.Logger, now func() time.Time, reg prometheus.Registerer) *notices {
	n := &notices{logger: logger, now: now, all: map[string]*notice{}, gauge: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "edge_environment_problem",
		Help: "1 while the node has this problem with proxies, peers, shards or certificates; its log and /readyz describe it.",
	}, []string{"problem"})}
	for _, problem := range append(proxy.Problems(), problemNoHeader, problemJoin, problemNoShard, problemShard, problemNotShared,
		problemNameConflict, problemClock, problemMaxNodes, problemSubWindows, problemLostCounts, problemCertificate) {
		n.gauge.WithLabelValues(problem)
		n.all[problem] = new(notice)
	}
	return n
}

// note records a problem or, if text is empty, that it has passed.
func (n *notices) note(problem, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, now := n.all[problem], n.now()
	known := one.text != ""
	if text != "" {
		text += see(problem)
	}
	one.text = text
	switch {
	case text == "" && known:
		n.gauge.WithLabelValues(problem).Set(0)
		if !one.hushed {
			n.logger.Info("problem resolved", "problem", problem)
		}
	case text != "":
		n.gauge.WithLabelValues(problem).Set(1)
		if !known || one.hushed { // a problem that persists after it was flapping is logged, too
			one.hushed = now.Sub(one.warned) < noticePause
			if !one.hushed {
				one.warned = now
				n.logger.Warn(text, "problem", problem)
			}
		}
	}
}

// has reports whether the node has a problem.
func (n *notices) has(problem string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[problem].text != ""
}

// details returns the descriptions of the current problems, sorted.
func (n *notices) details() (details []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		if one.text != "" {
			details = append(details, one.text)
		}
	}
	slices.Sort(details)
	return details
}

// noteNodes records whether the PoP has more nodes than this node's settings, or the sub-windows of its rules, allow
// for. The number of nodes only grows.
func (n *Node) noteNodes() {
	few, split := "", ""
	nodes := n.nodes()
	limits, alone := n.limiter.SubWindows()
	if limits > 0 && nodes > n.o.MaxNodes {
		few = fmt.Sprintf("the PoP has %d nodes but max_nodes is %d, so sub-windows may overflow when a node starts: set max_nodes to at least %[1]d on every node", nodes, n.o.MaxNodes)
	}
	if alone > 0 {
		split = fmt.Sprintf("limits that each node counts alone, because they have too many sub-windows for %d nodes: %d", nodes, alone)
	}
	n.notices.note(problemMaxNodes, few)
	n.notices.note(problemSubWindows, split)
}
