package decision

import (
	"encoding/json"

	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
)

// Version is the version of the format.
const Version = 1

// Events that lines are about.
const (
	EventNode     = "node"     // a file begins, or the node has started
	EventClock    = "clock"    // the clock has moved relative to the PoP's
	EventRule     = "rule"     // a rule that later lines refer to
	EventDecision = "decision" // the decision about a request under a key
	EventCount    = "count"    // how much a request counted, by its answer
	EventMissing  = "missing"  // how many lines are not in the log
)

// Reasons of EventNode.
const (
	ReasonStart    = "start"    // the node starts
	ReasonRotation = "rotation" // the log continues from another file
)

// A Line is a line of the log: a JSON object with the fields of its Event. Times are in microseconds
// since the Unix epoch, by the node's clock.
type Line struct {
	Event string `json:"event"`
	Time  int64  `json:"t"`

	// EventNode. Secret is the fingerprint of the PoP's secret.
	Version int     `json:"version,omitempty"`
	Node    string  `json:"node,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Secret  string  `json:"secret,omitempty"`
	Share   float64 `json:"share,omitempty"`
	Clients bool    `json:"clients,omitempty"` // keys are not pseudonyms

	// EventNode and EventClock. AheadMicros is 0 while it is not known.
	AheadMicros int64 `json:"ahead_us,omitempty"`

	// EventRule, EventDecision and EventCount. Ref is the number of the rule in this file, since the last EventNode: a
	// rule whose limits change gets a new number.
	Ref  int    `json:"ref,omitempty"`
	Rule string `json:"rule,omitempty"`

	Definition *Definition `json:"definition,omitempty"` // EventRule

	// EventDecision and EventCount
	Key        string `json:"key,omitempty"`
	Generation uint32 `json:"generation,omitempty"`
	// EventDecision: counted if the request passes; for a rule that counts answers, if its answer counts
	Cost   uint64 `json:"cost,omitempty"`
	Client string `json:"client,omitempty"`

	// EventDecision
	Verdict   string `json:"verdict,omitempty"`   // on the request
	By        string `json:"by,omitempty"`        // the rule that determined the verdict, if one did
	Mitigated bool   `json:"mitigated,omitempty"` // the key was mitigated
	ByHand    bool   `json:"by_hand,omitempty"`   // an operator made the mitigation
	Other     bool   `json:"other,omitempty"`     // the request was refused because of another key
	Counted   bool   `json:"counted,omitempty"`   // when it was decided

	Decided int64 `json:"decided,omitempty"` // EventCount: the time of the decision; 0 if not known

	Lines int64 `json:"lines,omitempty"` // EventMissing
}

// A Definition describes what a rule counts and when it mitigates.
type Definition struct {
	Counts              string  `json:"counts"` // see describe.Counting
	Limits              []Limit `json:"limits"`
	MitigationTimeoutS  float64 `json:"mitigation_timeout_s"`
	CountWhileMitigated bool    `json:"count_while_mitigated,omitempty"`
	CountsAnswer        bool    `json:"counts_answer,omitempty"` // lines of EventCount have the counts
	Action              string  `json:"action"`
}

// A Limit is a limit of a rule.
type Limit struct {
	Threshold  uint64  `json:"threshold"`
	PeriodS    float64 `json:"period_s"`
	SubWindows int     `json:"sub_windows,omitempty"`
	Estimate   string  `json:"estimate"`
}

func definitionOf(r *rule.Rule) *Definition {
	d := &Definition{
		Counts: describe.Counting(r), MitigationTimeoutS: r.MitigationTimeout.Seconds(),
		CountWhileMitigated: r.CountWhileMitigated,
		CountsAnswer:        r.CountsAnswer(), Action: r.Action.String(),
	}
	for _, l := range r.Limits {
		d.Limits = append(d.Limits, Limit{l.Threshold, l.Period.Seconds(), l.SubWindows, l.Estimate.String()})
	}
	return d
}

// line returns the line about a key, whose rule has the number ref.
func (b *Batch) line(k *Key, ref int, o *Options) Line {
	l := Line{Event: EventDecision, Time: b.Time, Ref: ref, Rule: k.Rule.ID, Generation: k.Generation, Cost: k.Cost}
	l.Key = k.Key.String()
	switch {
	case !o.Clients:
		l.Key = o.Secret.Tag(append(k.Key[:], "decision log"...)).String() // a pseudonym
	case b.Client.IsValid():
		l.Client = b.Client.String()
	}
	if b.Counting {
		l.Event, l.Decided = EventCount, b.Decided
		return l
	}
	l.Verdict, l.Mitigated, l.ByHand, l.Other, l.Counted = b.Verdict, k.Mitigated, k.ByHand, k.Other, k.Counted
	if b.Decider != nil {
		l.By = b.Decider.ID
	}
	return l
}

func appendLine(dst []byte, l Line) []byte {
	text, _ := json.Marshal(l) // all values of a Line can be encoded
	return append(append(dst, text...), '\n')
}
