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

// truth describes the decisions about all requests, given the refused ones, and counts the clients in by. It is nil
// if no request is part of an attack.
func (all truthCount) truth(refused truthCount, by ...*refusals) *Truth {
	if all.attack == 0 {
		return nil
	}
	attack, legitimate := map[netip.Addr]struct{}{}, map[netip.Addr]struct{}{}
	for _, r := range by {
		for addr, c := range r.clients {
			if c.attack > 0 {
				attack[addr] = struct{}{}
			}
			if c.refused > c.attack {
				legitimate[addr] = struct{}{}
			}
		}
	}
	return &Truth{
		TruthPart{all.attack, refused.attack, figure.Percent(refused.attack, all.attack), len(attack)},
		TruthPart{all.legitimate, refused.legitimate, figure.Percent(refused.legitimate, all.legitimate), len(legitimate)},
	}
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

// truth returns the number of requests on each side.
func (r *refusals) truth() (n truthCount) {
	for _, c := range r.clients {
		n.attack += c.attack
		n.legitimate += c.refused - c.attack
	}
	return n
}
