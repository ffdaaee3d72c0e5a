package count

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// Two kinds of counters still count but are no longer incremented: those at a shard that owned
// the key before, and those in a layout that a limit had before. Both are read when the key is
// counted after the change, until the change has settled because all nodes have made it, and once
// after that.

// A former is a shard with such counters: it owned the key before, or owns it.
type former struct {
	at      *lane
	settled time.Time
	next    time.Time // when to read it; zero: at once
	asking  bool      // a read is in flight
}

const (
	// formerPause is the pause before a former shard is read again with a count of the key.
	formerPause = 50 * time.Millisecond

	// rulesSettle is how long all nodes of a PoP may take to load the same rules.
	rulesSettle = 5 * time.Second
)

// slots yields the counters in which f may have counted.
func (t *track) slots(f *former, yield func(slot)) {
	for i := range t.windows {
		w := &t.windows[i]
		if f.at == t.owner && !w.outdated() {
			continue
		}
		last, _ := counter.Window(f.settled, w.limit.Period)
		for index := w.Index - 1; index <= min(w.Index, last); index++ {
			yield(t.slot(w.limit, index))
		}
	}
}

// concerns reports whether f may hold something that matters at now: counts of a current or
// previous window, or a record.
func (t *track) concerns(f *former, now time.Time) (it bool) {
	t.slots(f, func(slot) { it = true })
	return it || f.at != t.owner && t.rule != nil && f.settled.Add(t.rule.MitigationTimeout).After(now)
}

// asked records that a former shard was asked at when, and whether it answered.
func (t *track) asked(at *lane, when, now time.Time, answered bool) {
	t.formers = slices.DeleteFunc(t.formers, func(f former) bool {
		return f.at == at && answered && !when.Before(f.settled)
	})
	for i := range t.formers {
		if f := &t.formers[i]; f.at == at {
			f.asking, f.next = false, now.Add(formerPause)
			if now.Before(f.settled) && f.settled.Before(f.next) {
				f.next = f.settled
			}
		}
	}
}

// place makes owner the owner of t's key in the placement p, and finds the formers. They settle
// this long after they lost the key. held reports whether the key has a record, which then moves
// to the new owner.
func (t *track) place(p *placement, owner *lane, now time.Time, settle time.Duration, held bool) {
	t.advance(now)
	moved := t.address() != owner.addr()
	if moved {
		for i := range t.windows {
			w := &t.windows[i]
			w.Prev.move(t.address(), owner.addr())
			w.Cur.move(t.address(), owner.addr())
			w.fresh = true
		}
		t.version = 0
	}
	t.placed, t.owner, t.formers = p, owner, nil
	add := func(f former) {
		known := slices.ContainsFunc(t.formers, func(o former) bool { return o.at.addr() == f.at.addr() })
		if !known && t.concerns(&f, now) {
			t.formers = append(t.formers, f)
		}
	}
	for _, past := range p.past {
		if at, err := past.ring.Owner(t.key); err == nil && at.addr() != owner.addr() {
			add(former{at: at, settled: past.until.Add(settle)})
		}
	}
	t.store = t.store || moved && held && len(t.formers) > 0
	for i := len(t.windows) - 1; i >= 0 && t.windows[i].outdated(); i-- {
		add(former{at: owner, settled: t.windows[i].old.settled})
	}
}

// An outdated layout is one that a limit had before a reload. Its counters are no longer
// incremented, but still count until they have left the period: so nobody gets a fresh
// allowance by a reload. See view.
type outdated struct {
	limit   counter.Limit // as it was
	settled time.Time     // all nodes have reloaded, so the counters are final
	until   time.Time     // one period later: the counters have left the period
}

// outdatedBy returns the layouts that are outdated when after replaces the rules of r at now.
// r may be nil.
func (r *rules) outdatedBy(after *rule.Set, now time.Time) map[*rule.Rule][]outdated {
	var none [counter.MaxFields + 1]int
	if r == nil || r.set.PackedLimits() == none && after.PackedLimits() == none && len(r.outdated) == 0 {
		return nil // no layout changes: quick even with a million rules
	}
	all := map[*rule.Rule][]outdated{}
	settled := now.Add(rulesSettle)
	for _, old := range r.set.Rules() {
		current := after.Current(old)
		if current == nil {
			continue
		}
		list := slices.Clone(r.outdated[old])
		for _, limit := range old.Limits {
			list = append(list, outdated{limit.Counted(), settled, settled.Add(limit.Period)})
		}
		list = slices.DeleteFunc(list, func(o outdated) bool {
			limit, ok := countedAs(current, o.limit)
			return !ok || limit.Layout == o.limit.Layout || !now.Before(o.until)
		})
		if len(list) > 0 {
			all[current] = list
		}
	}
	return all
}

// sameCounters reports whether two limits of a rule have the same counters.
func sameCounters(a, b counter.Limit) bool { return a.Period == b.Period && a.Layout == b.Layout }

// countedAs returns the limit that r has for the period of limit.
func countedAs(r *rule.Rule, limit counter.Limit) (counter.Limit, bool) {
	for _, l := range r.Limits {
		if l.Period.Microseconds() == limit.Period {
			return l.Counted(), true
		}
	}
	return counter.Limit{}, false
}

// dropOutdated removes the windows of layouts that no longer count at now.
func (t *track) dropOutdated(now time.Time) {
	for i := len(t.windows) - 1; i >= 0 && t.windows[i].outdated(); i-- { // they are the last
		if w := &t.windows[i]; !now.Before(w.old.until) {
			t.lose(dropShard, w)
			t.windows = slices.Delete(t.windows, i, i+1)
		}
	}
}
