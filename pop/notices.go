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
	"github.com/edgelimit/edge/rule"
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
	problemDecisionLog  = "decision_log"
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
	logged bool      // a warning was logged, and the problem has not passed since
}

func newNotices(logger *slog.Logger, now func() time.Time, reg prometheus.Registerer) *notices {
	n := &notices{logger: logger, now: now, all: map[string]*notice{}, gauge: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "edge_environment_problem",
		Help: "1 while the node has this problem with proxies, peers, shards, certificates or its decision log; its log and /readyz describe it.",
	}, []string{"problem"})}
	for _, problem := range append(proxy.Problems(), problemNoHeader, problemJoin, problemNoShard, problemShard, problemNotShared,
		problemNameConflict, problemClock, problemMaxNodes, problemSubWindows, problemLostCounts, problemCertificate,
		problemDecisionLog) {
		n.gauge.WithLabelValues(problem)
		n.all[problem] = new(notice)
	}
	return n
}

// note records a problem or, if text is empty, that it has passed.
func (n *notices) note(problem, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	notice, now := n.all[problem], n.now()
	if text == "" {
		n.gauge.WithLabelValues(problem).Set(0)
		if notice.logged {
			n.logger.Info("problem resolved", "problem", problem)
		}
		notice.text, notice.logged = "", false
		return
	}
	notice.text = text + see(problem)
	n.gauge.WithLabelValues(problem).Set(1)
	if !notice.logged && now.Sub(notice.warned) >= noticePause { // also a problem that persists after it was flapping
		notice.warned, notice.logged = now, true
		n.logger.Warn(notice.text, "problem", problem)
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
	for _, notice := range n.all {
		if notice.text != "" {
			details = append(details, notice.text)
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

// joinPatience is how long a node tries to join its PoP before it reports a failure: nodes that start together
// wait for each other.
const joinPatience = 10 * time.Second

// inspectPeers looks for problems with the gossip. It is called once a second.
func (n *Node) inspectPeers(clock *clockCheck) {
	if n.o.Now().Sub(n.start) >= joinPatience {
		n.notices.note(problemJoin, n.gossip.JoinProblem())
	}
	peers, alone := n.gossip.Peers(), ""
	n.peerTable.Alive(peers, n.o.Now())
	if len(peers) > 0 && len(n.o.Shards) == 0 && n.o.ShardListen == "" {
		alone = "this node has peers but shares no shard with them, so each node counts alone: set shard, or " +
			"shard_listen on every node"
	}
	n.notices.note(problemNotShared, alone)
	n.notices.note(problemNameConflict, n.gossip.NameConflict())
	n.notices.note(problemClock, clock.problem(n.gossip.ClockOffset(), n.Rules()))
}

const (
	// clockDivisor: clocks may differ by at most 1/clockDivisor of the shortest period, because each node counts requests
	// in windows by its own clock.
	clockDivisor = 20

	// clockFor is the number of consecutive checks that must find a clock wrong: one may be imprecise.
	clockFor = 5
)

// A clockCheck counts consecutive checks that found the clock wrong.
type clockCheck struct{ wrong int }

// problem describes how far the clock is from those of the peers, if that is too far for rules. offset is how far it is
// ahead of them.
func (c *clockCheck) problem(offset time.Duration, rules *rule.Set) string {
	shortest := rule.MaxPeriod
	for _, r := range rules.Rules() {
		for _, l := range r.Limits {
			shortest = min(shortest, l.Period)
		}
	}
	if offset.Abs() <= shortest/clockDivisor {
		c.wrong = 0
		return ""
	}
	c.wrong++
	if c.wrong < clockFor {
		return ""
	}
	return fmt.Sprintf("this node's clock differs by %v from those of its peers, too much for limits with a period of %v: synchronize it", offset.Abs(), shortest)
}

const (
	// lossInterval is how often a node looks for counters that shards have lost.
	lossInterval = time.Minute

	// lostCounters is how many of them must be lost in that time to be a problem: any cache evicts a few.
	lostCounters = 10
)

// inspectCounts looks for counters that have lost counts. It is called every lossInterval.
func (n *Node) inspectCounts() {
	fallen := n.limiter.Fallen()
	lost, text := fallen-n.fallen, ""
	n.fallen = fallen
	if lost >= lostCounters {
		text = fmt.Sprintf("%d counters have lost counts within a minute: shards restarted, have too little memory, "+
			"or are several servers behind one address", lost)
	}
	n.notices.note(problemLostCounts, text)
}
