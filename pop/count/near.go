package count

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// maxNear is how many keys near their threshold the loop lists. Under a flood of such keys it lists the
// first ones, and makes room once per nearPause.
const (
	maxNear   = 4096
	nearPause = time.Second
)

// nearest lists tracks that were near a threshold when they were last evaluated.
type nearest struct {
	tracks []*track
	pruned time.Time
}

// note lists t. Those that are no longer near go when there is no more room.
func (l *nearest) note(t *track, now time.Time) {
	if len(l.tracks) >= maxNear {
		if now.Sub(l.pruned).Abs() < nearPause {
			return
		}
		l.pruned = now
		l.prune()
	}
	if len(l.tracks) < maxNear {
		t.listed = true
		l.tracks = append(l.tracks, t)
	}
}

func (l *nearest) prune() {
	l.tracks = slices.DeleteFunc(l.tracks, func(t *track) bool {
		t.listed = t.near && !t.forgotten
		return !t.listed
	})
}

// A Near is a key of which at most an eighth of a threshold is left, and which is not mitigated.
type Near struct {
	Key    counter.Key
	Rule   *rule.Rule
	Client netip.Addr // of its last request, invalid unless Options.LogClients
	Standing
	Remaining uint64
}

// Near returns up to n keys near their threshold, by what this node knows, the nearest first. The loop
// answers between two flushes: Near waits for it until ctx is done, and for ever while Run does not
// run, so ctx must end.
func (c *Loop) Near(ctx context.Context, n int) (all []Near) {
	answer := make(chan []Near, 1)
	select {
	case c.asks <- func() { answer <- c.findNear(n) }:
		return <-answer
	case <-ctx.Done():
		return nil
	}
}

// findNear is Near in the loop's goroutine.
func (c *Loop) findNear(n int) (all []Near) {
	now := c.o.Now()
	c.nearest.prune()
	for _, t := range c.nearest.tracks {
		if of, ok := c.nearOf(t, now); ok {
			all = append(all, of)
		}
	}
	left := func(of *Near) float64 { return float64(of.Remaining) / float64(of.Limit.Threshold) }
	slices.SortFunc(all, func(a, b Near) int {
		return cmp.Or(cmp.Compare(left(&a), left(&b)), slices.Compare(a.Key[:], b.Key[:]))
	})
	return slices.Clone(all[:min(n, len(all))])
}

func (c *Loop) nearOf(t *track, now time.Time) (of Near, ok bool) {
	if t.rule == nil {
		return of, false
	}
	r := c.rules.Load().set.Current(t.rule)
	if r == nil || t.shownOf != c.o.Table.Generation(t.key) {
		return of, false
	}
	if record, held := c.o.Table.Held(t.key, now); held && !record.Lifted && Acts(r, &record) {
		return of, false
	}
	for _, v := range t.shown {
		if v.ended(now) {
			continue
		}
		index, elapsed := counter.Window(now, v.limit.Period)
		v.Roll(index)
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		if left > v.limit.Threshold/nearFraction || ok && left >= of.Remaining {
			continue
		}
		of, ok = Near{Key: t.key, Rule: r, Standing: Standing{v.limit, v.Prev, v.Cur, elapsed}, Remaining: left}, true
	}
	if c.o.LogClients {
		of.Client = t.client
	}
	return of, ok
}
