package analysis

import (
	"net/netip"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// A Truth describes the decisions about requests that the log marks as an attack, and about all others.
type Truth struct {
	Attack     TruthPart `json:"attack"`
	Legitimate TruthPart `json:"legitimate"`
}

// A TruthPart describes the requests of one side. The refused ones include those that a rule only logs because of its
// action.
type TruthPart struct {
	Requests   uint64  `json:"requests"` // in the log
	Refused    uint64  `json:"refused"`
	RefusedPct float64 `json:"refused_pct"`
	Clients    int     `json:"clients"` // clients with a refused request
}

// refusedBy completes all, which has the numbers of requests, with those that were refused. It returns nil if no
// request is part of an attack.
func (all Truth) refusedBy(by ...*refusals) *Truth {
	if all.Attack.Requests == 0 {
		return nil
	}
	attack, legitimate := map[netip.Addr]struct{}{}, map[netip.Addr]struct{}{}
	for _, r := range by {
		for addr, c := range r.clients {
			all.Attack.Refused += c.attack
			all.Legitimate.Refused += c.Requests - c.attack
			if c.attack > 0 {
				attack[addr] = struct{}{}
			}
			if c.Requests > c.attack {
				legitimate[addr] = struct{}{}
			}
		}
	}
	all.Attack.Clients, all.Legitimate.Clients = len(attack), len(legitimate)
	for _, p := range []*TruthPart{&all.Attack, &all.Legitimate} {
		p.RefusedPct = figure.Percent(p.Refused, p.Requests)
	}
	return &all
}

// facts returns the facts of t. verb describes the decision, such as refused.
func (t *Truth) facts(verb string) (facts chart.Facts) {
	if t == nil {
		return nil
	}
	for i, p := range []TruthPart{t.Attack, t.Legitimate} {
		facts.Add([]string{"attack", "legitimate"}[i], p.Refused, "%s, %s of %s, from %s", verb,
			chart.Percent(p.Refused, p.Requests), chart.Count(p.Requests, "request"), chart.Count(p.Clients, "client"))
	}
	return facts
}
