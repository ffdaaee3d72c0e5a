package limit

import (
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/rule"
)

// A Quota describes what is left of one limit, for the client.
type Quota = async.Quota

// Quotas appends to dst the quotas that the client of d may learn at now. It omits those of rules that hide them, and
// of actions that keep them. For a mitigated request, it appends those of the
// rule that refuses it. For a rule with several keys, the smallest remaining quota counts, or an unknown one if there
// is one.
func (l *Limiter) Quotas(dst []Quota, d *Decision, now time.Time) []Quota {
	if d.Verdict.Refused() {
		if d.Record == nil || d.Rule == nil || !d.Rule.TellsQuota() {
			return dst
		}
		for _, limit := range d.Rule.Limits {
			q := Quota{Rule: d.Rule, Limit: limit}
			if q.Known = limit.Period.Microseconds() == d.Record.Why.Limit.Period; q.Known {
				q.Reset = d.RetryAfter(now)
			}
			dst = append(dst, q)
		}
		return dst
	}
	var last *rule.Rule
	at := 0 // index of its first quota
	for i := range d.n {
		c := d.at(i)
		if !c.rule.TellsQuota() {
			continue
		}
		end := len(dst)
		p := async.Passing{Cost: c.cost, Arrived: time.UnixMicro(d.decided), Now: now}
		if c.rule.CountsAnswer() && c.cost > c.rule.Reserve {
			p.Arrived = now // when it was counted
		}
		dst = l.Remaining(dst, c.rule, c.key, p)
		if c.rule.Base() != last {
			last, at = c.rule.Base(), end
			continue
		}
		for j, q := range dst[end:] {
			if known := &dst[at+j]; known.Known && (!q.Known || q.Remaining < known.Remaining) {
				*known = q
			}
		}
		dst = dst[:end]
	}
	return dst
}
