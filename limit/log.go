package limit

import (
	"time"

	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// log logs what is decided about the keys of the sample, for a request that counts n times if it
// passes.
func (l *Limiter) log(d *Decision, req *rule.Request, n uint64) {
	b := d.logged
	d.logged = nil
	b.Time, b.Verdict, b.Decider, b.Client = d.decided, d.Verdict.String(), d.Rule, req.Addr
	refused := d.refused()
	if req.Malformed && !refused {
		b.Verdict = Malformed.String()
	}
	for i := range b.Keys {
		k := &b.Keys[i]
		k.Other = refused && d.Verdict != Unavailable && !(d.Verdict.Refused() && d.Record != nil && d.Record.Key == k.Key)
		if k.Cost = k.Rule.CostOf(1); !k.Rule.CountsAnswer() {
			k.Cost = k.Rule.CostOf(n)
			k.Counted = n > 0 && (!k.Mitigated || k.Rule.CountsMitigated()) && d.counted(k.Rule, k.Mitigated)
		}
	}
	l.decisions.Offer(b)
}

// countAnswer counts a request by its answer, or without it, at now.
func (l *Limiter) countAnswer(d *Decision, c *counted, cost uint64, now time.Time) {
	c.cost = cost
	l.Offer(c.rule, c.key, c.generation, &d.source, cost, now)
	if l.decisions.Samples(c.key) {
		b := l.decisions.Add(nil, decision.Key{Rule: c.rule, Key: c.key, Generation: c.generation, Cost: cost})
		b.Time, b.Counting, b.Decided, b.Client = now.UnixMicro(), true, d.decided, d.source.Client
		l.decisions.Offer(b)
	}
}
