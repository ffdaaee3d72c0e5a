package analysis

import (
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
	"github.com/edgelimit/edge/pop/rule/describe"
)

// An enforcementTally collects an Enforcement.
type enforcementTally struct {
	o           EnforcementOptions
	sums        Enforcement // its numbers
	from, to    int64
	truth       truthCount
	refused     truthCount
	rules       []ruleTally // by the index of the rule
	mitigations mitigations
	timeline    TimelineCollector
	watch       watch // with Detail
	wrong       [2]disagreements
	causes      []cause                   // causes by which a decision may differ from that of the previous PoP
	exceeded    []map[netip.Addr]struct{} // of each instantPoP
}

// A ruleTally collects a RuleEnforcement.
type ruleTally struct {
	sums     RuleEnforcement
	refusals refusals
	demand   []*demand // with Detail: of each instantPoP
	wrong    [2]disagreements
}

// Ways in which a decision can be wrong.
const (
	wronglyRefused = iota
	wronglyAllowed
)

// disagreements collects a Disagreement.
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

func newEnforcementTally(o EnforcementOptions) *enforcementTally {
	t := &enforcementTally{
		o: o, rules: make([]ruleTally, len(o.Rules.Rules())), mitigations: newMitigations(o.Rules), causes: []cause{byEstimate},
	}
	for i, r := range o.Rules.Rules() {
		t.rules[i].sums.Rule, t.rules[i].sums.Action, t.rules[i].sums.Means = r.ID, r.Action.String(), describe.Rule(r)
	}
	return t
}

// add adds a request with the decisions about it: first by exact counts, then by each PoP.
func (t *enforcementTally) add(r *replayed) {
	exact, last := &r.decided[0], &r.decided[len(t.causes)]
	if t.sums.Requests++; t.sums.Requests == 1 {
		t.from = r.now
	}
	t.to = r.now
	t.truth.add(r.entry.Attack)
	if last.level() == refused {
		t.refused.add(r.entry.Attack)
	}
	t.timeline.Add(r.now, last.level() != passed)
	if t.o.Detail {
		name := func() string { return nameOf(&r.entry, r.network, t.o.PoP.Client) }
		t.watch.add(r.network, name, r.now, last.level() != passed, max(r.now, last.until))
	}
	switch last.verdict {
	case limit.Passed:
	case limit.Allowed:
		t.sums.Allowed++
	case limit.Denied:
		t.sums.Denied++
	case limit.Logged:
		t.sums.Logged++
		t.rules[last.rule.Index].refusals.add(r, t.o.PoP.Client)
	default:
		t.sums.Refused++
		t.rules[last.rule.Index].refusals.add(r, t.o.PoP.Client)
	}
	if exact.rule != nil {
		t.rules[exact.rule.Index].sums.ExactRefused++
	}
	if last.level() == exact.level() {
		return
	}
	i := len(t.causes) - 1
	for r.decided[i].level() == last.level() {
		i--
	}
	how, by := wronglyRefused, last.rule
	if last.level() < exact.level() {
		how, by = wronglyAllowed, exact.rule
	}
	t.wrong[how].add(r.network, t.causes[i])
	t.rules[by.Index].wrong[how].add(r.network, t.causes[i])
}

// report returns the results. It must be called once.
func (t *enforcementTally) report() *Enforcement {
	t.mitigations.join(&mitigations{spans: t.mitigations.spans})
	e := &t.sums
	e.From, e.To = figure.TimeOf(t.from), figure.TimeOf(t.to)
	e.PoP = t.o.PoP.report()
	e.WronglyRefused, e.WronglyAllowed = t.wrong[wronglyRefused].report(), t.wrong[wronglyAllowed].report()
	e.Timeline = t.timeline.Timeline()
	e.ClientTimelines = t.watch.report(t.o.Name)
	var acting []*refusals
	for i := range t.rules {
		ref := &t.rules[i].refusals
		r := t.rules[i].report(t.o, &t.mitigations.rules[i])
		r.Truth = t.truth.truth(ref.truth(), ref)
		r.Bystanders = t.bystanders(t.o.Rules.Rules()[i], ref)
		if t.o.Rules.Rules()[i].Action != rule.Log {
			acting = append(acting, ref)
		}
		if t.o.Detail {
			r.Peaks = peaksOf(t.rules[i].demand, t.o.Rules.Rules()[i].Limits)
		}
		e.Rules = append(e.Rules, r)
	}
	e.Truth = t.truth.truth(t.refused, acting...)
	return e
}

// bystanders returns the bystanders of a rule, nil if every key belongs to a single client or it only logs.
func (t *enforcementTally) bystanders(r *rule.Rule, ref *refusals) *Bystanders {
	if r.Width() == 0 || r.Action == rule.Log {
		return nil
	}
	b := new(Bystanders)
	for addr, client := range ref.clients {
		if !slices.ContainsFunc(t.exceeded, func(set map[netip.Addr]struct{}) bool { _, did := set[addr]; return did }) {
			b.Clients++
			b.Requests += client.refused
		}
	}
	return b
}

func (r *ruleTally) report(o EnforcementOptions, m *ruleMitigations) RuleEnforcement {
	e := r.sums
	e.Refused = r.refusals.requests
	e.RefusedPct = figure.Percent(e.Refused, e.Matched)
	e.Clients = len(r.refusals.clients)
	e.FirstRefusal = r.refusals.firstRefusal()
	e.Shares = r.refusals.shares()
	e.TopClients, e.TopPaths = r.refusals.topClients(o.Top, o.Name), r.refusals.topPaths(o.Top)
	e.Mitigations, e.Mitigated = m.n, MitigationDuration{TotalS: float64(m.total) / 1e6, MedianS: m.median(), MaxS: float64(m.longest) / 1e6}
	e.WronglyRefused, e.WronglyAllowed = r.wrong[wronglyRefused].report(), r.wrong[wronglyAllowed].report()
	return e
}

// counts reports whether a rule counts a request whose answer has this status.
func counts(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }
