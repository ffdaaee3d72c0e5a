package limit

import (
	"iter"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// An outdated layout is one that a limit had before a reload. Its counters are not counted
// in any more, but what they say goes on to count until it has left the period: so a reload
// opens no gate. See view.
type outdated struct {
	limit   counter.Limit // as it was
	settled time.Time     // by then all nodes have reloaded, so that the counters are final
	until   time.Time     // a period after that: from then on nothing in them is in the period
}

// rulesSettle is within how long all nodes of a PoP load the same rules. Until it is over
// outdated counters are read with each count of a key.
const rulesSettle = 5 * time.Second

// outdatedBy returns the layouts that are outdated once the rules after replace those of r,
// at now. r may be nil.
func (r *rules) outdatedBy(after *rule.Set, now time.Time) map[*rule.Rule][]outdated {
	if r == nil || !hasSubWindows(r.set) && !hasSubWindows(after) && len(r.outdated) == 0 {
		return nil // all layouts are the same, also where there are a million
	}
	all := map[*rule.Rule][]outdated{}
	settled := now.Add(rulesSettle)
	for _, old := range r.set.Rules() {
		current := after.Current(old)
		if current == nil {
			continue
		}
		var list []outdated
		add := func(o outdated) {
			limit, ok := countedAs(current, o.limit)
			if !ok || limit.Layout == o.limit.Layout || !now.Before(o.until) {
				return
			}
			list = append(slices.DeleteFunc(list, func(known outdated) bool {
				return sameCounters(known.limit, o.limit) // it was outdated before, for a while
			}), o)
		}
		for _, o := range r.outdated[old] {
			add(o)
		}
		for _, limit := range old.Limits {
			add(outdated{limit.Counted(), settled, settled.Add(limit.Period)})
		}
		if list != nil {
			all[current] = list
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
	t.windows = slices.DeleteFunc(t.windows, func(w window) bool {
		passed := w.outdated() && !now.Before(w.until)
		if passed {
			t.leave(&w)
		}
		return passed
	})
}

// A view is what is known of a limit's windows, in one layout: its own, or an outdated one in
// which other requests of the same period were counted.
type view struct {
	limit     counter.Limit
	prev, cur uint64
	until     time.Time // when the layout ceases to matter; zero: never
}

// views yields all that is known of w in its layout, and in each outdated one of its period.
// What was counted in other layouts is never more in one than if it had been counted in it:
// see counter.Layout.From.
func (t *track) views(w *window) iter.Seq[view] {
	return func(yield func(view) bool) {
		for i := range t.windows {
			if o := &t.windows[i]; o.limit.Period == w.limit.Period && !yield(t.view(w, o)) {
				return
			}
		}
	}
}

// view returns all that is known of w in the layout of o, which may be w.
func (t *track) view(w, o *window) view {
	v := view{limit: o.limit, until: o.until}
	for i := range t.windows {
		if each := &t.windows[i]; each.limit.Period == w.limit.Period && each.number == w.number {
			l := each.limit.Layout
			v.prev = v.limit.Layout.Add(v.prev, v.limit.Layout.From(l, each.prev.known(l)))
			v.cur = v.limit.Layout.Add(v.cur, v.limit.Layout.From(l, each.cur.known(l)))
		}
	}
	return v
}

// over reports whether the limit is exceeded at elapsed.
func (v *view) over(elapsed int64) bool { return v.limit.Over(v.prev, v.cur, elapsed) }

// remaining returns how many more requests may come at elapsed.
func (v *view) remaining(elapsed int64) uint64 { return v.limit.Remaining(v.prev, v.cur, elapsed) }

// back returns when the limit is not exceeded any more, at now, which is elapsed.
func (v *view) back(elapsed int64, now time.Time) time.Time {
	back := now.Add(time.Duration(v.limit.Back(v.prev, v.cur, elapsed)-elapsed) * time.Microsecond)
	if !v.until.IsZero() && v.until.Before(back) {
		return v.until
	}
	return back
}
