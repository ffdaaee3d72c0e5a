package limit

import (
	"slices"
	"sort"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// An outdated layout is one that a limit had before a reload. Its counters are not counted
// in any more, but what they say goes on to count until the new ones have covered a period:
// so a reload opens no gate.
type outdated struct {
	limit   counter.Limit
	settled time.Time // by then all nodes have reloaded, so that the counters are final
	until   time.Time // from then on nothing in them is in the period
}

// rulesSettle is within how long all nodes of a PoP load the same rules. Until it is over
// outdated counters are read with each count of a key.
const rulesSettle = 5 * time.Second

// outdatedBy returns the layouts that are outdated once the rules after replace those of r,
// at now. r may be nil.
func (r *rules) outdatedBy(after *rule.Set, now time.Time) map[*rule.Rule][]outdated {
	if r == nil || !hasSubWindows(r.set) && !hasSubWindows(after) && r.outdated == nil {
		return nil // all layouts are the same, also where there are a million
	}
	all := map[*rule.Rule][]outdated{}
	for _, old := range r.set.Rules() {
		current := after.Current(old)
		if current == nil {
			continue
		}
		list := r.outdated[old]
		for _, limit := range old.Limits {
			counted := limit.Counted()
			list = append(list[:len(list):len(list)], outdated{counted, now.Add(rulesSettle), now.Add(limit.Period)})
		}
		for _, o := range list {
			limit, ok := countedAs(current, o.limit)
			if !ok || limit.Layout == o.limit.Layout || !now.Before(o.until) {
				continue
			}
			all[current] = append(slices.DeleteFunc(all[current], func(known outdated) bool {
				return sameCounters(known.limit, o.limit) // it was outdated before, for a while
			}), o)
		}
	}
	return all
}

// hasSubWindows reports whether a limit of set has sub-windows.
func hasSubWindows(set *rule.Set) bool {
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			if l.SubWindows > 1 {
				return true
			}
		}
	}
	return false
}

// sameCounters reports whether two limits of a rule have the same counters.
func sameCounters(a, b counter.Limit) bool { return a.Period == b.Period && a.Layout == b.Layout }

// countedAs returns how r counts in the period of a limit.
func countedAs(r *rule.Rule, limit counter.Limit) (counter.Limit, bool) {
	for _, l := range r.Limits {
		if l.Period.Microseconds() == limit.Period {
			return l.Counted(), true
		}
	}
	return counter.Limit{}, false
}

// dropOutdated removes the windows of layouts that do not count any more at now.
func (t *track) dropOutdated(now time.Time) {
	kept := t.windows[:0]
	for _, w := range t.windows {
		if w.outdated() && !now.Before(w.until) {
			t.windows[0].late += w.late + w.unsent()
		} else {
			kept = append(kept, w)
		}
	}
	clear(t.windows[len(kept):])
	t.windows = kept
}

// held returns the limit that the counts of w are held against at elapsed: its own, less
// what outdated counters of the same period say, rounded down. See counter.Limit.
func (t *track) held(w *window, elapsed int64) counter.Limit {
	limit := w.limit
	at := time.UnixMicro(w.number*limit.Period + elapsed)
	for i := range t.windows {
		if o := &t.windows[i]; o.limit.Period == limit.Period && o.number == w.number && at.Before(o.until) {
			limit.Threshold -= min(limit.Threshold, o.estimate(elapsed).Floor())
		}
	}
	return limit
}

// back returns when the counts of w are back at the limit, in microseconds from the start
// of its window. Where outdated counters count as well, their share falls meanwhile.
func (t *track) back(w *window, elapsed int64) int64 {
	limit := t.held(w, elapsed)
	last := limit.Back(w.prev.known(limit.Layout), w.cur.known(limit.Layout), elapsed)
	if limit == w.limit {
		return last
	}
	return elapsed + int64(sort.Search(int(last-elapsed), func(more int) bool {
		at := elapsed + int64(more)
		return !w.estimate(at).Over(t.held(w, at).Threshold)
	}))
}

// estimate returns the estimate at elapsed, which may lie in the next window or after it.
func (w *window) estimate(elapsed int64) counter.Estimate {
	l := w.limit.Layout
	switch {
	case elapsed < w.limit.Period:
		return w.limit.Estimate(w.prev.known(l), w.cur.known(l), elapsed)
	case elapsed < 2*w.limit.Period:
		return w.limit.Estimate(w.cur.known(l), 0, elapsed-w.limit.Period)
	}
	return counter.Estimate{Of: 1}
}
