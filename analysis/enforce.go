package analysis

import (
	"cmp"
	"errors"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// EnforcementOptions say what is asked of an Enforcer. Rules are required; the zero value of
// every other field is usable.
type EnforcementOptions struct {
	Rules *rule.Set

	// PoP is what the rules are enforced by.
	PoP PoPOptions

	// Top is how many clients and paths are named for each rule. If zero, 10.
	Top int

	// Name is what the report calls a client. If nil, what the log does.
	Name func(client string) string
}

func (o EnforcementOptions) withDefaults() (EnforcementOptions, error) {
	if o.Rules == nil {
		return o, errors.New("analysis: Rules are required")
	}
	if o.Top < 0 {
		return o, errors.New("analysis: Top cannot be negative")
	}
	o.Top = cmp.Or(o.Top, 10)
	if o.Name == nil {
		o.Name = func(client string) string { return client }
	}
	return o, nil
}

// An Enforcer finds out what rules would have done to the requests of a log. It plays them
// through up to four PoPs side by side, each a step nearer to the one that is asked for:
//
//   - exact: a node that counts by an exact sliding log;
//   - estimate: a node that estimates as real ones do, and knows everything at once;
//   - lag: all nodes and shards, with their lag and skew;
//   - failure: the same, with the shards that are lost.
//
// What the last one does is what is reported. Where it decides otherwise than the exact one,
// the step from which on it stayed so is the cause. Each PoP has its own mitigations: what
// one of them stops a request earlier it counts differently from then on.
//
// The methods of an Enforcer are to be called one at a time.
type Enforcer struct {
	o        EnforcementOptions
	requests requests
	exact    *exactPoP
	steps    []step // from the exact PoP to the last one
	tally    *enforcementTally
}

// A step is a PoP with something that the one before does not have.
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
	f := &Enforcer{o: o}
	if f.exact, err = newExactPoP(o.PoP, o.Rules); err != nil {
		return nil, err
	}
	causes := map[cause]PoPOptions{byEstimate: {Client: o.PoP.Client}}
	if o.PoP.Nodes > 1 || o.PoP.Lag > 0 {
		late := o.PoP
		late.Losses = nil
		causes[byLag] = late
	}
	if len(o.PoP.Losses) > 0 {
		causes[byFailure] = o.PoP
	}
	for c := range causesOfError {
		if options, ok := causes[c]; ok {
			pop, err := NewSimulation(options, o.Rules)
			if err != nil {
				return nil, err
			}
			f.steps = append(f.steps, step{c, pop})
		}
	}
	f.tally = newEnforcementTally(o)
	f.last().mitigated = f.tally.mitigated
	return f, nil
}

// last returns the PoP that is reported.
func (f *Enforcer) last() *Simulation { return f.steps[len(f.steps)-1].pop }

// Add takes in the next request of the log. Times must not fall; one that does counts as
// the time before. e is not kept.
func (f *Enforcer) Add(e *accesslog.Entry) {
	asked := f.requests.of(e)
	req := asked // each PoP brings what it is asked into its canonical form
	exact := f.exact.decide(e, &req)
	var levels [causesOfError + 1]level
	levels[0] = levelOf(&exact)
	var d limit.Decision
	for i, s := range f.steps {
		req = asked
		d = s.pop.decide(e, &req)
		levels[i+1] = levelOf(&d)
	}
	f.tally.add(e, &req, &d, f.last().now)
	f.tally.exact(&exact)
	last := levels[len(f.steps)]
	if last == levels[0] {
		return
	}
	i := len(f.steps) - 1
	for levels[i] == last {
		i--
	}
	f.tally.differs(&exact, &d, &req, f.steps[i].cause)
}

// Report returns what was found. It is called once, after all requests were added.
func (f *Enforcer) Report() *Enforcement { return f.tally.report() }

// A level is how severely a request is dealt with.
type level uint8

const (
	passed  level = iota
	logged        // it would be refused, but for the action
	refused       // the origin does not see it
)

func levelOf(d *limit.Decision) level {
	switch {
	case d.Verdict.Refused():
		return refused
	case d.Verdict == limit.Logged:
		return logged
	}
	return passed
}
