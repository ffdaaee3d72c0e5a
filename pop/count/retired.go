package count

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// A retired counter is one that nobody counts in any more once all nodes have heard of a
// change, and that still counts: those of a shard which owned the key before, and those of a
// layout which a limit had before. It is read when the key is first counted after the change,
// and once more when it has settled. See window.until for how long it matters.
type retired struct {
	at    *lane         // the former shard; nil for a layout, which is read at the owner
	limit counter.Limit // the outdated layout; zero for a shard, where all layouts are read

	settled time.Time // by then every node has made the change, so that counters are final
	next    time.Time // when it is to be read; zero: at once
	tried   bool
	settles bool // it was tried after it settled
	done    bool // it has been read after it settled
}

const (
	// retiredPause is how long a former shard that did not answer is left alone by a key.
	// Then it is asked with the key's next count.
	retiredPause = time.Second

	// rulesSettle is within how long all nodes of a PoP load the same rules. Until it is over
	// outdated layouts are read with each count of a key.
	rulesSettle = 5 * time.Second
)

// askAgain has an outdated layout read with the count that has just come.
func (r *retired) askAgain() {
	if r.at == nil && !r.done {
		r.next = time.Time{}
	}
}

// isDue reports whether r is to be read for t at now.
func (t *track) isDue(r *retired, now time.Time) bool {
	return !r.done && !now.Before(r.next) && t.concerns(r, now)
}

// hasDue reports whether t has something to be read that is retired.
func (t *track) hasDue(now time.Time) bool {
	for i := range t.retired {
		if r := &t.retired[i]; (r.at == nil || !t.asking) && t.isDue(r, now) {
			return true
		}
	}
	return false
}

// concerns reports whether r may hold something that matters at now: counts of a current
// or previous window, or, as long as nobody has looked, a record.
func (t *track) concerns(r *retired, now time.Time) bool {
	for i := range t.windows {
		w := &t.windows[i]
		if r.at == nil && !sameCounters(w.limit, r.limit) {
			continue
		}
		index, _ := counter.Window(now, w.limit.Period)
		if last, _ := counter.Window(r.settled, w.limit.Period); last >= index-1 {
			return true
		}
	}
	return r.at != nil && !r.tried && r.settled.Add(t.rule.MitigationTimeout).After(now)
}

// slots appends to dst the counters that are to be read of r: those of the windows in which it
// may have been counted in.
func (t *track) slots(dst []slot, r *retired) []slot {
	for i := range t.windows {
		w := &t.windows[i]
		if r.at == nil && !sameCounters(w.limit, r.limit) {
			continue
		}
		last, _ := counter.Window(r.settled, w.limit.Period)
		for index := w.Index - 1; index <= min(w.Index, last); index++ {
			dst = append(dst, t.slot(w.limit, index))
		}
	}
	return dst
}

// tries takes in that r was asked at now, and whether it answered.
func (r *retired) tries(now time.Time, answered bool) {
	r.tried, r.settles = true, !now.Before(r.settled)
	switch {
	case answered:
		r.done, r.next = r.settles, r.settled
	default:
		if r.next = now.Add(retiredPause); now.Before(r.settled) && r.settled.Before(r.next) {
			r.next = r.settled
		}
	}
}

// readRetired takes in a retired counter, which was read over from at a shard, and reports
// whether its value fell.
func (t *track) readRetired(s slot, at *lane, from *counter.Link, value uint64) (fell bool) {
	w, tally := t.find(s)
	if tally == nil {
		return false
	}
	if at.addr() == t.address() {
		return tally.readOwner(s.limit.Layout, t.address(), from, value)
	}
	more, fell := tally.readFormer(s.limit.Layout, at.addr(), value, from)
	w.others = w.others || more
	return fell
}

// place makes owner the owner of t's key, as p says, and finds out which shards owned it
// before. They settle so long after they ceased to. held says that there is a record of the
// key: it follows to the new owner.
func (t *track) place(p *placement, owner *lane, now time.Time, settle time.Duration, held bool) {
	moved := t.address() != owner.addr()
	if moved {
		for i := range t.windows {
			w := &t.windows[i]
			w.Prev.move(t.address(), owner.addr())
			w.Cur.move(t.address(), owner.addr())
			w.fresh = true
		}
		t.conflict, t.version = false, 0
	}
	known := t.retired
	t.owner, t.retired, t.change = owner, nil, p.change
	for _, r := range known {
		if r.at == nil {
			t.retired = append(t.retired, retired{limit: r.limit, settled: r.settled})
		}
	}
	formers := 0
	for _, past := range p.past {
		at, err := past.ring.Owner(t.key)
		if err != nil || at.addr() == owner.addr() ||
			slices.ContainsFunc(t.retired, func(r retired) bool { return r.at != nil && r.at.addr() == at.addr() }) {
			continue
		}
		r := retired{at: at, settled: past.until.Add(settle)}
		if !t.concerns(&r, now) {
			continue
		}
		for i := range known {
			if known[i].at == at && known[i].settled.Equal(r.settled) {
				r = known[i]
			}
		}
		formers++
		t.retired = append(t.retired, r)
	}
	t.store = t.store || moved && held && formers > 0
}

// An outdated layout is one that a limit had before a reload. Its counters are not counted
// in any more, but what they say goes on to count until it has left the period: so a reload
// opens no gate. See view.
type outdated struct {
	limit   counter.Limit // as it was
	settled time.Time     // by then all nodes have reloaded, so that the counters are final
	until   time.Time     // a period after that: from then on nothing in them is in the period
}

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
			t.lose(dropShard, &w)
		}
		return passed
	})
}

// Counted returns the limits that are counted or read, by any rule: one for each period and
// layout.
func (c *Loop) Counted() (limits []counter.Limit) {
	add := func(limit counter.Limit) {
		if !slices.ContainsFunc(limits, func(other counter.Limit) bool { return sameCounters(other, limit) }) {
			limits = append(limits, limit)
		}
	}
	rules := c.rules.Load()
	for _, r := range rules.set.Rules() {
		for _, each := range r.Limits {
			add(each.Counted())
		}
	}
	for _, list := range rules.outdated {
		for _, o := range list {
			add(o.limit)
		}
	}
	return limits
}
