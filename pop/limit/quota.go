package limit

import (
	"time"

	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// A Quota is what a client may be told about one limit.
type Quota struct {
	Rule  *rule.Rule
	Limit rule.Limit

	// Known is whether the node has a current estimate. If not, only Rule and Limit are set.
	Known bool

	// Remaining is how many more requests may come now before the limit is exceeded.
	Remaining uint64

	// Reset is the time until Remaining changes if no more requests come: when the period
	// leaves or enters the oldest sub-window that counts, or the mitigation ends. With whole
	// windows it is the end of the current one.
	Reset time.Duration
}

// Quotas appends what the client of a decided request may be told at now to dst. Rules with the
// actions log and shadow_ban, which clients must not notice, are left out. For a mitigated
// request the quotas are those of the rule that decided. For a rule with several keys the
// smallest remaining quota counts.
func (l *Limiter) Quotas(dst []Quota, d *Decision, now time.Time) []Quota {
	switch d.Verdict {
	case Blocked, Closed:
		for _, limit := range d.Rule.Limits {
			q := Quota{Rule: d.Rule, Limit: limit}
			if q.Known = limit.Period.Microseconds() == d.Record.Why.Limit.Period; q.Known {
				q.Reset = d.Record.Deadline.Sub(now)
			}
			dst = append(dst, q)
		}
	case Passed, Logged:
		var last *rule.Rule
		at := 0 // index of its first quota
		for i := range d.n {
			c := d.at(i)
			if c.rule.Action < rule.Block {
				continue
			}
			end := len(dst)
			if dst = l.remaining(dst, c, now); c.rule != last {
				last, at = c.rule, end
				continue
			}
			for j, q := range dst[end:] {
				dst[at+j] = dst[at+j].least(q)
			}
			dst = dst[:end]
		}
	}
	return dst
}

// least returns the smaller quota of a limit for two keys, an unknown one if there is one.
func (q Quota) least(o Quota) Quota {
	if !q.Known || o.Known && q.Remaining <= o.Remaining {
		return q
	}
	return o
}

// remaining appends the quotas of the limits of c.
func (l *Limiter) remaining(dst []Quota, c counted, now time.Time) []Quota {
	at := len(dst)
	for _, limit := range c.rule.Limits {
		dst = append(dst, Quota{Rule: c.rule, Limit: limit})
	}
	var known [4]count.Remaining
	for _, r := range l.Remaining(known[:0], c.key, now) {
		for i := range dst[at:] {
			if q := &dst[at+i]; q.Limit.Period == r.Period {
				q.Known, q.Remaining, q.Reset = true, r.Requests, r.Falls
			}
		}
	}
	return dst
}
