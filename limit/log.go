package limit

import (
	"time"

	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// log logs the decisions about the keys of the sample, for a request that counts n times if it passes.
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
		k.Cost = k.Rule.CostOf(1)
		if !k.Rule.CountsAnswer() || k.Rule.Reserve > 0 {
			k.Cost = k.Rule.CostOnArrival(n)
			for _, key := range d.Counts {
				k.Counted = k.Counted || n > 0 && key == k.Key
			}
		}
	}
	l.decisions.Offer(b)
}

// countAnswer counts the part of cost beyond the reserve, at now. The answer is known, or nobody waits for it.
func (l *Limiter) countAnswer(d *Decision, c *count, cost uint64, now time.Time) {
	if cost <= c.rule.Reserve {
		return
	}
	cost -= c.rule.Reserve
	c.cost += cost
	c.within = l.Offer(c.rule, c.key, c.generation, &d.sample, cost, now)
	c.answered = now.UnixMicro()
	if l.decisions.Samples(c.key) {
		b := l.decisions.Add(nil, decision.Key{Rule: c.rule, Key: c.key, Generation: c.generation, Cost: cost})
		b.Time, b.Counting, b.Decided, b.Client = now.UnixMicro(), true, d.decided, d.sample.Client
		l.decisions.Offer(b)
	}
}
