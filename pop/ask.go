package pop

import (
	"time"

	"github.com/edgelimit/edge/limit"
)

// An Ask asks whether a rule lets a request pass; see [limit.Ask].
type Ask = limit.Ask

// An Answer is the decision about an Ask, with details for the client.
type Answer struct {
	limit.Decision
	Quotas []limit.Quota

	// RetryAfter is the time after which a refused client may retry, in whole seconds, at least one.
	RetryAfter time.Duration

	// ID identifies a refusal to operators; see [limit.Limiter.ID].
	ID limit.ID
}

// DecideBy answers asks, each by its rule; see [limit.Limiter.DecideBy].
func (n *Node) DecideBy(asks ...Ask) []Answer {
	now := n.o.Now()
	answers := make([]Answer, len(asks))
	for i, d := range n.limiter.DecideBy(asks, now) {
		answers[i] = Answer{Decision: d, Quotas: n.limiter.Quotas(nil, &d, now)}
		if d.Verdict.Refused() {
			answers[i].ID = n.limiter.ID(&d, asks[i].Request.Addr)
			left := d.RetryAfter(now) // negative if there is no record
			answers[i].RetryAfter = max(time.Second, (left + time.Second - 1).Truncate(time.Second))
		}
	}
	return answers
}
