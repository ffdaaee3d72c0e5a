package pop

// Problems that a node looks for while it runs.

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/rule"
)

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
		text = fmt.Sprintf("%d counters have lost counts within a minute: shards restarted, evict counters because they have too little memory, "+
			"or are several servers behind one address", lost)
	}
	n.notices.note(problemLostCounts, text)
}
