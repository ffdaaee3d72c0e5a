package analysis

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
)

// EnforcementOptions configures an Enforcer. Rules are required; the zero value of every other
// field is usable.
type EnforcementOptions struct {
	Rules *rule.Set

	// PoP is the PoP that enforces the rules.
	PoP PoPOptions

	ReportOptions

	// Detail collects data for plots: the peaks of keys, and the requests over time of the clients with the most refusals.
	// It needs memory for each key, and bounded memory for clients.
	Detail bool
}

func (o EnforcementOptions) withDefaults() (EnforcementOptions, error) {
	if o.Rules == nil {
		return o, errors.New("analysis: Rules are required")
	}
	if err := o.setDefaults(); err != nil {
		return o, err
	}
	var err error
	o.PoP, err = o.PoP.withDefaults()
	return o, err
}

// An Enforcer determines what rules would have done to the requests of a log. It replays them through up to
// four simulated PoPs, each closer to that of the options:
//
//   - exact: a node that counts by an exact sliding log;
//   - estimate: a node that estimates as real ones do, and knows everything immediately;
//   - lag: all nodes and shards, with their lag and skew;
//   - failure: the same, with failing shards.
//
// The report shows the decisions of the last PoP. If one of them differs from the exact decision, the cause is the
// last step that changed it. Each PoP has its own mitigations: one that refuses a request earlier than another counts
// differently from then on.
//
// The methods of an Enforcer must not be called concurrently. It runs goroutines from the first Add until
// Report.
type Enforcer struct {
	o           EnforcementOptions
	player      *player
	surveyor    *player // during the survey, else nil
	instant     []*instantPoP
	simulated   *Simulation // PoP of the options; nil if the instant PoPs suffice
	causes      []cause     // causes by which a decision may differ from that of the previous PoP
	sums        Enforcement // counts of the report
	attack      uint64      // number of requests that the log marks as an attack
	denied      refusals    // by the deny list
	rules       []ruleTally // by the index of the rule
	mitigations mitigations
	timeline    TimelineCollector
	watch       watch // with Detail

	wronglyRefused, wronglyAllowed disagreements
}

// NewEnforcer returns an Enforcer.
func NewEnforcer(o EnforcementOptions) (*Enforcer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	rules := o.Rules.Rules()
	f := &Enforcer{o: o, player: newRulesPlayer(o.PoP.Client, o.Rules), causes: []cause{byEstimate},
		rules: make([]ruleTally, len(rules)), mitigations: newMitigations(o.Rules)}
	f.instant = f.player.instant(o.Rules, 0, true)
	for i, r := range rules {
		f.rules[i].sums.Rule, f.rules[i].sums.Action, f.rules[i].sums.Means = r.ID, r.Action.String(), describe.Rule(r)
		for _, x := range f.instant {
			if o.Detail {
				x.demand = append(x.demand, client.NewValues[demandWindow](len(r.Limits)))
			}
		}
	}
	simulate := func(c cause, o PoPOptions) {
		if err == nil {
			if f.simulated, err = NewSimulation(o, f.o.Rules); err == nil {
				f.causes = append(f.causes, c)
				f.player.simulate(f.simulated, len(f.causes))
			}
		}
	}
	if o.PoP.Nodes > 1 || o.PoP.Lag > 0 {
		late := o.PoP
		late.Losses = nil
		simulate(byLag, late)
	}
	if len(o.PoP.Losses) > 0 {
		simulate(byFailure, o.PoP)
	}
	if err != nil {
		return nil, err
	}
	if f.simulated != nil {
		f.simulated.mitigated = f.mitigations.add
	}
	f.player.done = f.add
	return f, nil
}

// Surveys reports whether Survey makes Add faster.
func (f *Enforcer) Surveys() bool {
	return f.simulated != nil && f.o.PoP.Skew == 0 && len(f.o.PoP.Losses) == 0
}

// Survey adds a request to the survey. Call it only if Surveys returns true, with all requests of the log, and then
// pass the same requests in the same order to Add. The survey does not change the report: it only spares nodes from
// counting requests whose keys never exceed a limit.
func (f *Enforcer) Survey(e *accesslog.Entry) {
	if f.surveyor == nil {
		f.surveyor = f.player.survey(f.instant, surveyMemory)
	}
	f.surveyor.add(e)
}

// endSurvey ends the survey, if there was one.
func (f *Enforcer) endSurvey() {
	if f.surveyor == nil {
		return
	}
	f.surveyor.finish()
	f.surveyor = nil
	for _, x := range f.instant {
		x.surveying, x.survey.cells = false, nil
		clear(x.matches)
	}
}

// Add adds the next request of the log. A time before that of the previous request is treated as the same time. Add
// retains the strings of e, but not e.
func (f *Enforcer) Add(e *accesslog.Entry) {
	f.endSurvey()
	f.player.add(e)
}

// Report returns the results. It must be called once, after all requests have been added.
func (f *Enforcer) Report() *Enforcement {
	f.endSurvey()
	f.player.finish()
	var exceeded []map[netip.Addr]struct{}
	for i, x := range f.instant {
		for r := range x.matches {
			rule := &f.rules[r]
			rule.sums.Matched += x.matches[r]
			if x.demand != nil {
				rule.demand = append(rule.demand, x.demand[r])
			}
			if f.simulated == nil {
				rule.sums.Counted += x.counted[r]
			} else {
				rule.sums.Counted += x.cold[r]
			}
		}
		exceeded = append(exceeded, x.exceeded)
		if f.simulated == nil {
			f.mitigations.join(&x.mitigated)
		}
		if i > 0 {
			f.instant[0].clients.young.Join(&x.clients.young.Table)
		}
	}
	f.mitigations.join(&mitigations{spans: f.mitigations.spans})
	e := &f.sums
	e.Clients = int(f.instant[0].clients.young.Len())
	e.Requests, e.From, e.To = f.player.n, figure.TimeOf(f.player.first), figure.TimeOf(f.player.last)
	e.PoP = f.o.PoP.report()
	e.WronglyRefused, e.WronglyAllowed = f.wronglyRefused.Disagreement, f.wronglyAllowed.Disagreement
	e.Timeline = f.timeline.Timeline()
	e.ClientTimelines = f.watch.report(f.o.Name)
	all := Truth{Attack: TruthPart{Requests: f.attack}, Legitimate: TruthPart{Requests: e.Requests - f.attack}}
	acting := []*refusals{&f.denied}
	for i, r := range f.o.Rules.Rules() {
		t := &f.rules[i]
		if f.simulated != nil {
			t.sums.Counted += f.simulated.counted[i]
		}
		if r.Action.Refuses() {
			acting = append(acting, &t.refusals)
		}
		report := t.report(f.o, &f.mitigations.rules[i])
		report.Truth = all.refusedBy(&t.refusals)
		report.Bystanders = t.bystanders(r, exceeded)
		if f.o.Detail {
			report.Peaks = peaksOf(t.demand, r.Limits)
		}
		e.Rules = append(e.Rules, report)
	}
	e.Truth = all.refusedBy(acting...)
	return e
}

// A ruleTally collects a RuleEnforcement.
type ruleTally struct {
	sums     RuleEnforcement
	refusals refusals
	demand   []*demand // with Detail: of each instantPoP

	wronglyRefused, wronglyAllowed disagreements
}

// disagreements collect a Disagreement.
type disagreements struct {
	Disagreement
	clients map[netip.Addr]struct{}
}

func (d *disagreements) add(client netip.Addr, c cause) {
	if d.clients == nil {
		d.clients = map[netip.Addr]struct{}{}
	}
	d.clients[client] = struct{}{}
	d.Requests, d.Clients = d.Requests+1, len(d.clients)
	counts := [...]*uint64{byEstimate: &d.ByCause.Estimate, byLag: &d.ByCause.Lag, byFailure: &d.ByCause.Failure}
	*counts[c]++
}

// add adds a request with the decisions about it: first by exact counts, then by each PoP.
func (f *Enforcer) add(r *replayedRequest) {
	exact, last := &r.decided[0], &r.decided[len(f.causes)]
	if r.entry.Attack {
		f.attack++
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
		f.denied.add(r, f.o.PoP.Client)
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
	if last.level() > exact.level() {
		f.wronglyRefused.add(r.network, f.causes[i])
		f.rules[last.rule.Index].wronglyRefused.add(r.network, f.causes[i])
	} else {
		f.wronglyAllowed.add(r.network, f.causes[i])
		f.rules[exact.rule.Index].wronglyAllowed.add(r.network, f.causes[i])
	}
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
			b.Requests += client.Requests
		}
	}
	return b
}

func (r *ruleTally) report(o EnforcementOptions, m *ruleMitigations) RuleEnforcement {
	e := r.sums
	e.Refused = r.refusals.requests
	e.RefusedPct = figure.Percent(e.Refused, e.Matched)
	e.Clients = len(r.refusals.clients)
	e.FirstRefusal = r.refusals.first
	e.Shares = r.refusals.shares()
	e.TopClients, e.TopPaths = r.refusals.topClients(o.Top, o.Name), r.refusals.topPaths(o.Top)
	e.Mitigations, e.Mitigated = m.n,
		MitigationDuration{TotalS: float64(m.total) / 1e6, MedianS: m.median(), MaxS: float64(m.longest) / 1e6}
	e.WronglyRefused, e.WronglyAllowed = r.wronglyRefused.Disagreement, r.wronglyAllowed.Disagreement
	return e
}

// counts reports whether a rule counts a request whose answer has this status.
func counts(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }
