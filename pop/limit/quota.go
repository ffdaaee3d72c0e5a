package limit

import (
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// A Quota is what a client may be told of one limit.
type Quota struct {
	Rule  *rule.Rule
	Limit rule.Limit

	// Known says that the node holds a current estimate. If not, only the policy is
	// known: Rule and Limit.
	Known bool

	// Remaining is how many more requests may come now before the limit is exceeded.
	Remaining uint64

	// Reset is when that changes at the latest without further requests: when the period
	// leaves the oldest sub-window that counts, or enters it, or at the end of the
	// mitigation. With whole windows it is the end of the current one.
	Reset time.Duration
}

// Quotas appends to dst what the client of a decided request may be told at now. Rules
// that act unseen, with the actions log and shadow_ban, are left out. What is told of a
// mitigation is what decided.
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
		for i := range d.n {
			if c := d.at(i); c.rule.Action >= rule.Block {
				dst = l.remaining(dst, c, now)
			}
		}
	}
	return dst
}

// remaining appends what is known of the limits of c.
func (l *Limiter) remaining(dst []Quota, c count, now time.Time) []Quota {
	at := len(dst)
	for _, limit := range c.rule.Limits {
		dst = append(dst, Quota{Rule: c.rule, Limit: limit})
	}
	t, ok := l.tracks[c.key[0]%trackParts].Peek(c.key)
	if !ok {
		return dst
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range dst[at:] {
		q := &dst[at+i]
		for j := range t.windows {
			w := &t.windows[j]
			number, elapsed := counter.Window(now, w.limit.Period)
			if w.outdated() || w.limit.Period != q.Limit.Period.Microseconds() || w.number != number || w.fresh || w.seen < 0 {
				continue
			}
			for v := range t.views(w) {
				if n := v.remaining(elapsed); !q.Known || n < q.Remaining {
					q.Known, q.Remaining = true, n
					q.Reset = time.Duration(v.limit.Falls(v.prev, v.cur, elapsed)-elapsed) * time.Microsecond
				}
			}
		}
	}
	return dst
}
