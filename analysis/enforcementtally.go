package analysis

import (
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

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
	clients  map[netip.Addr]struct{}
	requests uint64
	byCause  [causesOfError]uint64
}

func (d *disagreements) add(client netip.Addr, c cause) {
	if d.clients == nil {
		d.clients = map[netip.Addr]struct{}{}
	}
	d.clients[client] = struct{}{}
	d.requests++
	d.byCause[c]++
}

func (d *disagreements) report() Disagreement {
	return Disagreement{d.requests, len(d.clients), ByCause{d.byCause[byEstimate], d.byCause[byLag], d.byCause[byFailure]}}
}

// add adds a request with the decisions about it: first by exact counts, then by each PoP.
func (f *Enforcer) add(r *replayedRequest) {
	exact, last := &r.decided[0], &r.decided[len(f.causes)]
	f.truth.add(r.entry.Attack)
	if last.level() == refused {
		f.refused.add(r.entry.Attack)
	}
	f.timeline.Add(r.now, last.level() != passed)
	if f.o.Detail {
		name := func() string { return nameOf(&r.entry, r.network, f.o.PoP.Client) }
		f.watch.add(r.network, name, r.now, last.level() != passed, last.until)
	}
	switch last.verdict {
	case limit.Passed:
	case limit.Allowed:
		f.sums.Allowed++
	case limit.Denied:
		f.sums.Denied++
	case limit.Logged:
		f.sums.Logged++
		f.rules[last.rule.Index].refusals.add(r, f.o.PoP.Client)
	default:
		f.sums.Refused++
		f.rules[last.rule.Index].refusals.add(r, f.o.PoP.Client)
	}
	if exact.rule != nil {
		f.rules[exact.rule.Index].sums.ExactRefused++
	}
	if last.level() == exact.level() {
		return
	}
	i := len(f.causes) - 1
	for r.decided[i].level() == last.level() {
		i--
	}
	how, by := wronglyRefused, last.rule
	if last.level() < exact.level() {
		how, by = wronglyAllowed, exact.rule
	}
	f.wrong[how].add(r.network, f.causes[i])
	f.rules[by.Index].wrong[how].add(r.network, f.causes[i])
}

// bystanders returns the bystanders of r, nil if every key belongs to a single client or r only logs. exceeded are
// the clients that exceeded a limit of their own.
func (t *ruleTally) bystanders(r *rule.Rule, exceeded []map[netip.Addr]struct{}) *Bystanders {
	if r.Width() == 0 || !r.Action.Refuses() {
		return nil
	}
	b := new(Bystanders)
	for addr, client := range t.refusals.clients {
		if !slices.ContainsFunc(exceeded, func(set map[netip.Addr]struct{}) bool { _, did := set[addr]; return did }) {
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
	e.Mitigations, e.Mitigated = m.n,
		MitigationDuration{TotalS: float64(m.total) / 1e6, MedianS: m.median(), MaxS: float64(m.longest) / 1e6}
	e.WronglyRefused, e.WronglyAllowed = r.wrong[wronglyRefused].report(), r.wrong[wronglyAllowed].report()
	return e
}

// counts reports whether a rule counts a request whose answer has this status.
func counts(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }
