package pop

import (
	"cmp"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/decision"
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
	err := n.decisions.Open()
	if err == nil {
		return nil
	}
	if named := new(fs.PathError); errors.As(err, &named) {
		err = named.Err // the error of the setting already has the file
	}
	return &setting.Error{Setting: "decision-log", Value: strconv.Quote(n.o.DecisionLog), Problem: err.Error(), Hint: "the node writes it, and renames it when it is full"}
}

// Decisions returns the last lines of the decision log that q selects.
func (n operator) Decisions(q admin.DecisionQuery) (found admin.Decisions, err error) {
	if n.decisions == nil {
		return found, errors.New("pop: the node has no decision log: set decision_log")
	}
	found.Decisions = []admin.Decision{}
	for _, line := range n.decisions.Recent() {
		if q.Rule != "" && line.Rule != q.Rule || !strings.HasPrefix(line.Key, strings.ToLower(q.Key)) {
			continue
		}
		d := admin.Decision{
			Event: line.Event, Time: time.UnixMicro(line.Time).UTC(), Rule: line.Rule, Key: line.Key, Client: line.Client, Verdict: line.Verdict, By: line.By,
			Mitigated: line.Mitigated, ByHand: line.ByHand, Other: line.Other, Counted: line.Counted, Cost: line.Cost, Generation: int(line.Generation),
		}
		if line.Decided != 0 {
			at := time.UnixMicro(line.Decided).UTC()
			d.Decided = &at
		}
		if found.Decisions = append(found.Decisions, d); len(found.Decisions) == cmp.Or(q.Limit, 100) {
			break
		}
	}
	return found, nil
}
