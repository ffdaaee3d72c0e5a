package analysis

import (
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// An Exact is the PoP that an Enforcer holds others against, for those who have other
// decisions to judge: one node that counts by an exact sliding log. Its methods are to be
// called one at a time.
type Exact struct {
	requests requests
	pop      *exactPoP
}

// NewExact returns an exact PoP with rules, for clients as prefix makes them.
func NewExact(prefix rule.ClientPrefix, rules *rule.Set) (*Exact, error) {
	pop, err := newExactPoP(PoPOptions{Client: prefix}, rules)
	return &Exact{pop: pop}, err
}

// Decide decides about a request, and counts it if it passes. See Simulation.Decide.
func (x *Exact) Decide(e *accesslog.Entry) limit.Decision {
	req := x.requests.of(e)
	return x.pop.decide(e, &req)
}

// RequestOf returns what rules look at of e, as a node would be sent it.
func RequestOf(e *accesslog.Entry) rule.Request { return new(requests).of(e) }
