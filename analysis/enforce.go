package analysis

import (
	"errors"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/pop/rule"
)

// EnforcementOptions configures an Enforcer. Rules are required; the zero value of every other
// field is usable.
type EnforcementOptions struct {
	Rules *rule.Set

	// PoP is the PoP that enforces the rules.
	PoP PoPOptions

	ReportOptions

	// Detail collects data for plots: the peaks of keys, and the requests of the most refused clients over time.
	// It needs memory for each key, and bounded memory for clients.
	Detail bool
}

func (o EnforcementOptions) withDefaults() (EnforcementOptions, error) {
	if o.Rules == nil {
		return o, errors.New("analysis: Rules are required")
	}
	return o, o.setDefaults()
}

// An Enforcer determines what rules would have done to the requests of a log. It plays them through up to four
// PoPs side by side, each a step closer to Options.PoP:
//
//   - exact: a node that counts by an exact sliding log;
//   - estimate: a node that estimates as real ones do, and knows everything immediately;
//   - lag: all nodes and shards, with their lag and skew;
//   - failure: the same, with failing shards.
//
// The report shows the decisions of the last one. If its decision differs from the exact one, the cause is the
// first step from which all later ones differ, too. Each PoP has its own mitigations: if one of them refuses a
// request earlier, it counts differently from then on.
//
// The methods of an Enforcer must not be called concurrently. It runs goroutines from the first Add until
// Report.
type Enforcer struct {
	player  *player
	instant []*instantPoP
	steps   []step // the simulated PoPs
	tally   *enforcementTally
}

// A step is a simulated PoP with a property that the previous step lacks.
type step struct {
	cause cause
	pop   *Simulation
}

// NewEnforcer returns an Enforcer.
func NewEnforcer(o EnforcementOptions) (*Enforcer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.PoP, err = o.PoP.withDefaults(); err != nil {
		return nil, err
	}
	f := &Enforcer{player: newRulesPlayer(o.PoP.Client, o.Rules), tally: newEnforcementTally(o)}
	f.instant = f.player.instant(o.Rules, 0, true)
	if o.Detail {
		for _, x := range f.instant {
			for _, r := range o.Rules.Rules() {
				x.demand = append(x.demand, client.NewValues[demandWindow](len(r.Limits)))
			}
		}
	}
	simulate := func(c cause, o PoPOptions, rules *rule.Set) error {
		pop, err := NewSimulation(o, rules)
		if err == nil {
			f.steps = append(f.steps, step{c, pop})
			f.tally.causes = append(f.tally.causes, c)
			f.player.simulate(pop, len(f.tally.causes))
		}
		return err
	}
	if o.PoP.Nodes > 1 || o.PoP.Lag > 0 {
		late := o.PoP
		late.Losses = nil
		err = simulate(byLag, late, o.Rules)
	}
	if err == nil && len(o.PoP.Losses) > 0 {
		err = simulate(byFailure, o.PoP, o.Rules)
	}
	if err != nil {
		return nil, err
	}
	if n := len(f.steps); n > 0 {
		f.steps[n-1].pop.mitigated = f.tally.mitigations.add
	}
	f.player.done = f.tally.add
	return f, nil
}

// Add adds the next request of the log. A time before that of the previous request counts as the same time. Add
// retains the strings of e, but not e.
func (f *Enforcer) Add(e *accesslog.Entry) { f.player.add(e) }

// Report returns the results. It must be called once, after all requests have been added.
func (f *Enforcer) Report() *Enforcement {
	f.player.finish()
	t := f.tally
	for i, x := range f.instant {
		for r := range x.sums {
			t.rules[r].sums.Matched += x.sums[r].matched
			if x.demand != nil {
				t.rules[r].demand = append(t.rules[r].demand, x.demand[r])
			}
			if len(f.steps) == 0 {
				t.rules[r].sums.Counted += x.sums[r].counted
			}
		}
		t.exceeded = append(t.exceeded, x.exceeded)
		if len(f.steps) == 0 {
			t.mitigations.join(&x.mitigated)
		}
		if i > 0 {
			f.instant[0].clients.young.Join(&x.clients.young.Table)
		}
	}
	if n := len(f.steps); n > 0 {
		for i, r := range t.o.Rules.Rules() {
			t.rules[i].sums.Counted = f.steps[n-1].pop.countedBy(r)
		}
	}
	t.sums.Clients = int(f.instant[0].clients.young.Len())
	return t.report()
}
