package async

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// Two kinds of counters still count but are no longer incremented: those at a shard that owned
// the key before, and those in a layout that a limit had before. Both are read when the key is
// counted after the change, until the change has settled because all nodes have made it, and once
// after that.

// A former is a shard with such counters: it owned the key before, or owns it.
type former struct {
	at      *lane
	settled time.Time
	next    time.Time // when to read it; zero means immediately
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
	for i, w := range t.windows() {
		limit := &t.plan.limits[i]
		if f.at == t.owner && !limit.outdated() {
			continue
		}
		last, _ := counter.Window(f.settled, limit.Period)
		for index := w.Index - 1; index != w.Index+1 && index <= uint32(last); index++ {
			yield(t.slot(i, index))
		}
	}
}

// concerns reports whether f may hold something that matters at now: counts of a current or
// previous window, or a record.
func (t *track) concerns(f *former, now time.Time) (it bool) {
	t.slots(f, func(slot) { it = true })
	return it || f.at != t.owner && t.plan != nil && f.settled.Add(t.plan.rule.MitigationTimeout).After(now)
}

// asked records when a former shard was asked, and whether it answered.
func (t *track) asked(at *lane, when, now time.Time, answered bool) {
	if t.formers() == nil {
		return
	}
	r := t.rare()
	r.formers = slices.DeleteFunc(r.formers, func(f former) bool {
		return f.at == at && answered && !when.Before(f.settled)
	})
	for i := range r.formers {
		if f := &r.formers[i]; f.at == at {
			f.asking, f.next = false, now.Add(formerPause)
			if now.Before(f.settled) && f.settled.Before(f.next) {
				f.next = f.settled
			}
		}
	}
}

// place makes owner the owner of t's key in the placement p, and finds the formers, which settle
// this long after they lost the key. held is whether the key has a record, which then moves
// to the new owner.
func (t *track) place(p *placement, owner *lane, now time.Time, settle time.Duration, held bool) {
	t.advance(now)
	moved := t.address() != owner.addr()
	if moved {
		windows := t.windows()
		for i := range windows {
			w, l := &windows[i], t.plan.limits[i].Layout
			w.Prev.move(l, t.address(), owner.addr())
			w.Cur.move(l, t.address(), owner.addr())
			w.fresh = true
		}
		t.setVersion(0)
	}
	t.unplace()
	t.placed, t.owner = p.epoch, owner
	add := func(f former) {
		known := slices.ContainsFunc(t.formers(), func(o former) bool { return o.at.addr() == f.at.addr() })
		if !known && t.concerns(&f, now) {
			t.rare().formers = append(t.formers(), f)
		}
	}
	for _, past := range p.past {
		if at, err := past.ring.Owner(t.key); err == nil && at.addr() != owner.addr() {
			add(former{at: at, settled: past.until.Add(settle)})
		}
	}
	t.store = t.store || moved && held && len(t.formers()) > 0
	if t.plan != nil {
		for _, limit := range slices.Backward(t.plan.limits) {
			if limit.outdated() {
				add(former{at: owner, settled: limit.settled})
			}
		}
	}
}

// A plan describes how the keys of a rule are counted. It is immutable and shared by their tracks.
type plan struct {
	rule   *rule.Rule
	limits []planned // the rule's limits, then those with outdated layouts
	until  time.Time // when the first outdated layout leaves its period; zero if no layout is outdated
	lost   *losses
}

// A planned limit is a limit of a rule, in its current layout or an outdated one from before a reload. Counters
// in outdated layouts are no longer incremented, but still count until they have left the period, so that no
// client gets a fresh allowance from a reload. See view.
type planned struct {
	counter.Limit
	settled time.Time // when all nodes have reloaded, so the counters are final
	until   time.Time // one period later, when the counters have left the period; zero if the layout is not outdated
	of      int       // the rule's limit with the same period
}

// outdated reports whether the layout is no longer the rule's.
func (p *planned) outdated() bool { return !p.until.IsZero() }

// ended reports whether the layout no longer matters at now.
func (p *planned) ended(now time.Time) bool { return p.outdated() && !now.Before(p.until) }

// newPlan returns the plan of r at now, with the outdated layouts of its limits.
func newPlan(r *rule.Rule, outdated []planned, lost *losses, now time.Time) *plan {
	p := &plan{rule: r, lost: lost}
	for i, l := range r.Limits {
		p.limits = append(p.limits, planned{Limit: l.Counted(), of: i})
	}
	for _, o := range outdated {
		if o.of = slices.IndexFunc(r.Limits, o.samePeriod); o.of >= 0 && !o.ended(now) {
			o.Threshold = r.Limits[o.of].Threshold
			p.limits = append(p.limits, o)
			p.until = earlier(p.until, o.until)
		}
	}
	return p
}

func (p *planned) samePeriod(l rule.Limit) bool { return l.Period.Microseconds() == p.Period }

// find returns the index of the limit with the same counters as limit, or -1 if p is nil or has no such limit.
func (p *plan) find(limit *planned) int {
	if p == nil {
		return -1
	}
	return slices.IndexFunc(p.limits, func(l planned) bool { return l.Period == limit.Period && l.Layout == limit.Layout })
}

// setPlan makes r, which must be in rules, the rule by which t is counted.
func (c *Loop) setPlan(t *track, r *rule.Rule, rules *rules, now time.Time) {
	if p := t.plan; p != nil && p.rule == r && (p.until.IsZero() || now.Before(p.until)) {
		return
	}
	p := rules.plans[r]
	if p == nil || !p.until.IsZero() && !now.Before(p.until) {
		p = newPlan(r, rules.outdated[r.Base()], &c.lost, now)
		rules.plans[r] = p
	}
	part := c.part(t.key)
	part.mu.Lock()
	defer part.mu.Unlock()
	t.setPlan(p, now)
}

// outdatedBy returns the layouts that become outdated when after replaces the rules of r at now.
// r may be nil.
func (r *rules) outdatedBy(after *rule.Set, now time.Time) map[*rule.Rule][]planned {
	var none [counter.MaxFields + 1]int
	if r == nil || r.set.PackedLimits() == none && after.PackedLimits() == none && len(r.outdated) == 0 {
		return nil // no layout changes: quick even with a million rules
	}
	all := map[*rule.Rule][]planned{}
	settled := now.Add(rulesSettle)
	for _, old := range r.set.Rules() {
		current := after.Current(old)
		if current == nil {
			continue
		}
		list := slices.Clone(r.outdated[old])
		for _, limit := range old.Limits {
			list = append(list, planned{Limit: limit.Counted(), settled: settled, until: settled.Add(limit.Period)})
		}
		list = slices.DeleteFunc(list, func(o planned) bool {
			limit, ok := countedAs(current, o.Limit)
			return !ok || limit.Layout == o.Layout || !now.Before(o.until)
		})
		if len(list) > 0 {
			all[current] = list
		}
	}
	return all
}

// countedAs returns the limit of r with the period of limit, and reports whether there is one.
func countedAs(r *rule.Rule, limit counter.Limit) (counter.Limit, bool) {
	for _, l := range r.Limits {
		if l.Period.Microseconds() == limit.Period {
			return l.Counted(), true
		}
	}
	return counter.Limit{}, false
}
