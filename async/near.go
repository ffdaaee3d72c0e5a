package async

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A Near describes a key that is not mitigated but has at most an eighth of a threshold left.
type Near struct {
	Key            counter.Key
	Rule           *rule.Rule
	Client         netip.Addr // of the key's last request; invalid unless Options.LogClients is set
	mitigation.Why            // the limit that the key is nearest to, with its counts
	Remaining      uint64
}

// Near returns at most n keys near their threshold, as far as this node knows, nearest first. The loop scans a part of
// its keys between two flushes, and Near waits for that, at most until ctx is done. Give ctx a deadline: if Run has
// stopped, Near would block forever.
func (c *Loop) Near(ctx context.Context, n int) (all []Near) {
	left := func(found *Near) float64 { return float64(found.Remaining) / float64(found.Limit.Threshold) }
	for i := range c.tracks {
		looked := make(chan struct{})
		look := func() {
			now := c.o.Now()
			for t := range c.tracks[i].all {
				if found, ok := c.nearOf(t, now); ok {
					all = append(all, found)
				}
			}
			close(looked)
		}
		select {
		case c.calls <- look:
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

// nearOf returns the state of t for the limit that it is nearest to, or false if it is not near any.
func (c *Loop) nearOf(t *track, now time.Time) (found Near, ok bool) {
	if !t.near {
		return found, false
	}
	r := c.rules.Load().Current(t.rule)
	if r == nil || t.generation != c.o.Table.Generation(t.key) {
		return found, false
	}
	if record, held := c.o.Table.Held(t.key, now); held && !record.Lifted && Acts(r, &record) {
		return found, false
	}
	for i := range t.windows() {
		v := t.view(i)
		index, elapsed := counter.Window(now, v.limit.Period)
		v.Roll(index)
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		if left > v.limit.Threshold/nearFraction || ok && left >= found.Remaining {
			continue
		}
		found, ok = Near{Key: t.key, Rule: r, Why: mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed},
			Remaining: left}, true
	}
	if c.o.LogClients {
		found.Client = t.lastClient()
	}
	return found, ok
}
