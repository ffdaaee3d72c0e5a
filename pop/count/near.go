package count

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A Near is a key of which at most an eighth of a threshold is left, and which is not mitigated.
type Near struct {
	Key            counter.Key
	Rule           *rule.Rule
	Client         netip.Addr // of its last request, invalid unless Options.LogClients
	mitigation.Why            // the numbers of the limit that it is nearest to
	Remaining      uint64
}

// Near returns up to n keys near their threshold, by what this node knows, the nearest first. The loop looks at
// a part of its keys between two flushes: Near waits for it until ctx is done, so ctx must end:
// without Run nothing answers.
func (c *Loop) Near(ctx context.Context, n int) (all []Near) {
	left := func(of *Near) float64 { return float64(of.Remaining) / float64(of.Limit.Threshold) }
	for i := range c.tracks {
		looked := make(chan struct{})
		look := func() {
			now := c.o.Now()
			for t := range c.tracks[i].all {
				if of, ok := c.nearOf(t, now); ok {
					all = append(all, of)
				}
			}
			close(looked)
		}
		select {
		case c.asks <- look:
			<-looked
		case <-ctx.Done():
			return nil
		}
		slices.SortFunc(all, func(a, b Near) int {
			return cmp.Or(cmp.Compare(left(&a), left(&b)), slices.Compare(a.Key[:], b.Key[:]))
		})
		all = all[:min(n, len(all))]
	}
	return all
}

// nearOf returns how t stands against the limit that it is nearest to, false if it is near none.
func (c *Loop) nearOf(t *track, now time.Time) (of Near, ok bool) {
	if !t.near {
		return of, false
	}
	r := c.rules.Load().set.Current(t.plan.rule)
	if r == nil || t.generation != c.o.Table.Generation(t.key) {
		return of, false
	}
	if record, held := c.o.Table.Held(t.key, now); held && !record.Lifted && Acts(r, &record) {
		return of, false
	}
	for i := range t.plan.limits {
		v := t.view(i)
		if v.ended(now) {
			continue
		}
		index, elapsed := counter.Window(now, v.limit.Period)
		v.Roll(index)
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		if left > v.limit.Threshold/nearFraction || ok && left >= of.Remaining {
			continue
		}
		of, ok = Near{Key: t.key, Rule: r, Why: mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed}, Remaining: left}, true
	}
	if c.o.LogClients {
		of.Client = t.lastClient()
	}
	return of, ok
}
