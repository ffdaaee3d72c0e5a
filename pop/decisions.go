package pop

import (
	"strconv"

	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/pop/setting"
)

// newDecisionLog returns the decision log, or nil if it is not enabled.
func (n *Node) newDecisionLog() (*decision.Log, error) {
	if n.o.DecisionLog == "" {
		return nil, nil
	}
	o := decision.Options{
		File: n.o.DecisionLog, Size: n.o.DecisionLogSize, Share: n.o.DecisionLogShare, Node: n.o.Name, Secret: n.secret,
		Clients: n.o.LogClients, Now: n.o.Now, Logger: n.o.Logger, Registerer: n.registry,
	}
	if n.gossip != nil {
		o.Ahead = n.gossip.ClockAheadOfMost
	}
	return decision.New(o)
}

// openDecisionLog opens the log's file, if there is a log.
func (n *Node) openDecisionLog() error {
	if n.decisions == nil {
		return nil
	}
	if err := n.decisions.Open(); err != nil {
		return &setting.Error{Setting: "decision-log", Value: strconv.Quote(n.o.DecisionLog), Problem: err.Error()}
	}
	return nil
}
