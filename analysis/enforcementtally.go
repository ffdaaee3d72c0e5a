package analysis

import (
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// An enforcementTally gathers an Enforcement.
type enforcementTally struct {
	o          EnforcementOptions
	sums       Enforcement // its numbers
	from, to   int64
	clients    map[netip.Addr]struct{}
	rules      []ruleTally // by the index of the rule
	byID       map[string]int
	mitigating map[counter.Key]*span
	timeline   TimelineCollector
	wrong      [2]disagreements
	matched    []*rule.Rule
}

// A ruleTally gathers a RuleEnforcement.
type ruleTally struct {
	sums     RuleEnforcement
	refusals refusals
	lifetime map[int64]int // how many mitigations lasted so many milliseconds
	wrong    [2]disagreements
}

// Ways in which a decision can be wrong.
const (
	wronglyRefused = iota
	wronglyAllowed
)

// disagreements gather a Disagreement.
type disagreements struct {
	sums    Disagreement
	clients map[netip.Addr]struct{}
}

func (d *disagreements) add(client netip.Addr, c cause) {
	if d.clients == nil {
		d.clients = map[netip.Addr]struct{}{}
	}
	d.clients[client] = struct{}{}
	d.sums.Requests++
	d.sums.ByCause.add(c)
}

func (d *disagreements) report() Disagreement {
	d.sums.Clients = len(d.clients)
	return d.sums
}

// A span is a mitigation of a key.
type span struct {
	rule       int
	start, end int64
}

func newEnforcementTally(o EnforcementOptions) *enforcementTally {
	t := &enforcementTally{
		o: o, rules: make([]ruleTally, len(o.Rules.Rules())), byID: map[string]int{},
		clients: map[netip.Addr]struct{}{}, mitigating: map[counter.Key]*span{},
	}
	for i, r := range o.Rules.Rules() {
		t.byID[r.ID] = i
		t.rules[i].sums.Rule, t.rules[i].sums.Action = r.ID, r.Action.String()
		t.rules[i].lifetime = map[int64]int{}
	}
	return t
}

// add takes in a canonical request with what became of it.
func (t *enforcementTally) add(e *accesslog.Entry, req *rule.Request, d *limit.Decision, now int64) {
	if t.sums.Requests++; t.sums.Requests == 1 {
		t.from = now
	}
	t.to = now
	t.clients[req.Client()] = struct{}{}
	t.timeline.Add(now, levelOf(d) != passed)
	switch d.Verdict {
	case limit.Allowed:
		t.sums.Allowed++
		return
	case limit.Denied:
		t.sums.Denied++
		return
	}
	t.matched = t.o.Rules.Match(req, t.matched[:0])
	for _, r := range t.matched {
		var buf [256]byte
		if keys := r.Keys(buf[:0], req); keys.Len() > 0 {
			t.rules[r.Index].sums.Matched++
		}
	}
	var last *rule.Rule // it is yielded with each of its keys, in a row
	for r := range d.Counts {
		if r != last && counts(r, e.Status) {
			t.rules[r.Index].sums.Counted++
		}
		last = r
	}
	switch levelOf(d) {
	case passed:
		return
	case logged:
		t.sums.Logged++
	case refused:
		t.sums.Refused++
	}
	t.rules[d.Rule.Index].refusals.add(e, req, t.o.PoP.Client, now)
}

// exact takes in what the exact PoP did.
func (t *enforcementTally) exact(d *limit.Decision) {
	if d.Rule != nil {
		t.rules[d.Rule.Index].sums.ExactRefused++
	}
}

// differs takes in that the last PoP decided otherwise than the exact one.
func (t *enforcementTally) differs(exact, last *limit.Decision, req *rule.Request, c cause) {
	how, by := wronglyRefused, last.Rule
	if levelOf(last) < levelOf(exact) {
		how, by = wronglyAllowed, exact.Rule
	}
	t.wrong[how].add(req.Client(), c)
	t.rules[by.Index].wrong[how].add(req.Client(), c)
}

// mitigated takes in a record that a node has made or prolonged.
func (t *enforcementTally) mitigated(r mitigation.Record, start, end int64) {
	s := t.mitigating[r.Key]
	switch {
	case s != nil && start < s.end: // prolonged, or started by another node as well
		s.end = max(s.end, end)
	case s != nil:
		t.ended(s)
		s.start, s.end = start, end
	case r.Sample != nil:
		t.mitigating[r.Key] = &span{t.byID[r.Sample.Rule], start, end}
	}
}

// ended takes in a mitigation.
func (t *enforcementTally) ended(s *span) {
	r := &t.rules[s.rule]
	lasted := s.end - s.start
	r.sums.Mitigations++
	r.sums.Mitigated.TotalS += float64(lasted) / 1e6
	r.sums.Mitigated.MaxS = max(r.sums.Mitigated.MaxS, float64(lasted)/1e6)
	r.lifetime[(lasted+500)/1000]++
}

// report returns what was gathered. It is called once.
func (t *enforcementTally) report() *Enforcement {
	for _, s := range t.mitigating {
		t.ended(s)
	}
	e := &t.sums
	e.Clients = len(t.clients)
	e.From, e.To = timeOf(t.from), timeOf(t.to)
	e.PoP = t.o.PoP.report()
	e.WronglyRefused, e.WronglyAllowed = t.wrong[wronglyRefused].report(), t.wrong[wronglyAllowed].report()
	e.Timeline = t.timeline.Timeline()
	for i := range t.rules {
		e.Rules = append(e.Rules, t.rules[i].report(t.o))
	}
	return e
}

func (r *ruleTally) report(o EnforcementOptions) RuleEnforcement {
	e := r.sums
	e.Refused = r.refusals.requests
	if e.Matched > 0 {
		e.RefusedPct = 100 * float64(e.Refused) / float64(e.Matched)
	}
	e.Clients = len(r.refusals.clients)
	e.FirstRefusal = r.refusals.firstRefusal()
	e.TopClients, e.TopPaths = r.refusals.topClients(o.Top, o.Name), r.refusals.topPaths(o.Top)
	e.Mitigated.MedianS = r.median()
	e.WronglyRefused, e.WronglyAllowed = r.wrong[wronglyRefused].report(), r.wrong[wronglyAllowed].report()
	return e
}

// median returns the median of the lifetimes, in seconds, to the millisecond. Of an even
// number it is the lower of the two in the middle.
func (r *ruleTally) median() float64 {
	lasted := make([]int64, 0, len(r.lifetime))
	for ms := range r.lifetime {
		lasted = append(lasted, ms)
	}
	slices.Sort(lasted)
	n := 0
	for _, ms := range lasted {
		if n += r.lifetime[ms]; 2*n >= r.sums.Mitigations {
			return float64(ms) / 1e3
		}
	}
	return 0
}

// counts reports whether a rule counts a request that the origin answers with status.
func counts(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }
