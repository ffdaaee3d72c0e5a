package count

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// Two kinds of counters still count but are no longer incremented: those at a shard that owned
// the key before, and those in a layout that a limit had before. Both are read when the key is
// first counted after the change, and again when the change has settled: when all nodes made it.

// A former is a shard that owned a key before.
type former struct {
	at      *lane
	settled time.Time
	next    time.Time // when to read it; zero: at once
	looked  bool      // the key's record was read
	asking  bool      // a read is in flight
}

const (
	// formerPause is how long a key does not retry a former shard that did not answer. Then
	// it is read with the key's next count.
	formerPause = time.Second

	// rulesSettle is how long all nodes of a PoP may take to load the same rules. Until then
	// outdated layouts are read with each count of a key.
	rulesSettle = 5 * time.Second
)

// concerns reports whether f may hold something that matters at now: counts of a current or
// previous window, or a record that was not read yet.
func (t *track) concerns(f *former, now time.Time) bool {
	for i := range t.windows {
		period := t.windows[i].limit.Period
		index, _ := counter.Window(now, period)
		if last, _ := counter.Window(f.settled, period); last >= index-1 {
			return true
		}
	}
	return !f.looked && t.rule != nil && f.settled.Add(t.rule.MitigationTimeout).After(now)
}

// slots appends the counters of the windows in which f may have counted to dst.
func (t *track) slots(dst []slot, f *former) []slot {
	for i := range t.windows {
		w := &t.windows[i]
		last, _ := counter.Window(f.settled, w.limit.Period)
		for index := w.Index - 1; index <= min(w.Index, last); index++ {
			dst = append(dst, t.slot(w.limit, index))
		}
	}
	return dst
}

// asked records that a former shard was asked at when, and whether it answered.
func (t *track) asked(at *lane, when, now time.Time, answered bool) {
	t.formers = slices.DeleteFunc(t.formers, func(f former) bool {
		return f.at == at && answered && !when.Before(f.settled)
	})
	for i := range t.formers {
		f := &t.formers[i]
		if f.at != at {
			continue
		}
		f.asking = false
		if answered {
			f.looked, f.next = true, f.settled
		} else if f.next = now.Add(formerPause); now.Before(f.settled) && f.settled.Before(f.next) {
			f.next = f.settled
		}
	}
}

// readFormer records the value of a counter that was read at a former shard, over the connection
// from. It reports whether the value fell.
func (t *track) readFormer(s slot, at *lane, from *counter.Link, value uint64) (fell bool) {
	w, tally := t.find(s)
	if tally == nil {
		return false
	}
	if at.addr() == t.address() { // it owns the key again
		return tally.readOwner(s.limit.Layout, t.address(), from, value)
	}
	more, fell := tally.readFormer(s.limit.Layout, at.addr(), value, from)
	w.others = w.others || more
	return fell
}

// place makes owner the owner of t's key in the placement p, and finds its former owners. They
// settle this long after they lost the key. held reports whether the key has a record, which then
// moves to the new owner.
func (t *track) place(p *placement, owner *lane, now time.Time, settle time.Duration, held bool) {
	moved := t.address() != owner.addr()
	if moved {
		for i := range t.windows {
			w := &t.windows[i]
			w.Prev.move(t.address(), owner.addr())
			w.Cur.move(t.address(), owner.addr())
			w.fresh, w.final = true, false
		}
		t.conflict, t.version = false, 0
	}
	known := t.formers
	t.owner, t.formers, t.change = owner, nil, p.change
	for _, past := range p.past {
		at, err := past.ring.Owner(t.key)
		if err != nil || at.addr() == owner.addr() || slices.ContainsFunc(t.formers, func(f former) bool { return f.at.addr() == at.addr() }) {
			continue
		}
		f := former{at: at, settled: past.until.Add(settle)}
		if !t.concerns(&f, now) {
			continue
		}
		for _, k := range known {
			if k.at == at && k.settled.Equal(f.settled) {
				f = k
			}
		}
		t.formers = append(t.formers, f)
		if now.Before(f.settled) && f.settled.After(t.settles) {
			t.settles = f.settled
		}
	}
	t.store = t.store || moved && held && len(t.formers) > 0
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
		var list []outdated
		add := func(o outdated) {
			limit, ok := countedAs(current, o.limit)
			if !ok || limit.Layout == o.limit.Layout || !now.Before(o.until) {
				return
			}
			list = append(slices.DeleteFunc(list, func(known outdated) bool {
				return sameCounters(known.limit, o.limit) // it was outdated once before
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
		if w := &t.windows[i]; !now.Before(w.until) {
			t.lose(dropShard, w)
			t.windows = slices.Delete(t.windows, i, i+1)
		}
	}
}

// Counted returns the limits that any rule counts or reads, one for each period and layout.
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
