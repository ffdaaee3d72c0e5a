package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/pop/rule"
)

// oracleFlags configures which rules answers are checked against and what fails the run.
type oracleFlags struct {
	set      *pflag.FlagSet
	rules    []string
	o        load.OracleOptions
	comeBack bool
	failIf   []string
	log      string

	conditions []*load.Condition
}

func (f *oracleFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	listVar(f.set, &f.rules, "rules", "rules `files` of the PoP, or directories of them")
	f.set.DurationVar(&f.o.Lag, "lag", 500*time.Millisecond, "maximum time until all nodes act on a count; longer is a fault")
	f.set.DurationVar(&f.o.Skew, "skew", 15*time.Millisecond, "maximum difference between the nodes' clocks and this machine's, plus the nodes' tick of 10 ms")
	f.set.IntVar(&f.o.Client.IPv4, "ipv4-prefix", 32, "leading `bits` of an IPv4 address that identify a client, as configured on the nodes")
	f.set.IntVar(&f.o.Client.IPv6, "ipv6-prefix", 64, "the same for IPv6 addresses")
	f.set.BoolVar(&f.comeBack, "come-back", true, "let some refused clients wait for their Retry-After, and then retry")
	f.set.StringArrayVar(&f.failIf, "fail-if", nil, "exit with status 1 if this `expression` over fields of the JSON report is true: 'innocent_refused > 0'")
	f.set.StringVar(&f.log, "log", "", "write what was sent to this `file`, as a log for edge replay")
	return f.set
}

// check reads rules and conditions.
func (f *oracleFlags) check(o *load.Options) error {
	var errs []error
	if len(f.rules) == 0 {
		for _, name := range []string{"lag", "skew", "ipv4-prefix", "ipv6-prefix", "come-back"} {
			if f.set.Changed(name) {
				errs = append(errs, fail(name, "--rules rules.yaml: those of the PoP", "it needs --rules"))
			}
		}
	} else if rules, err := rule.Load(f.rules...); err != nil {
		errs = append(errs, err)
	} else {
		f.use(rules, o)
	}
	if f.o.Lag <= 0 || f.o.Skew < 0 {
		errs = append(errs, usageError{errors.New("--lag must be positive, and --skew must not be negative"), ""})
	}
	errs = append(errs, within("ipv4-prefix", int64(f.o.Client.IPv4), 32), within("ipv6-prefix", int64(f.o.Client.IPv6), 128))
	for _, text := range f.failIf {
		c, err := load.ParseCondition(text, len(f.rules) > 0)
		if err != nil {
			errs = append(errs, fail("fail-if", "use the field names of --json; those of the score need --rules", "%s", message(err)))
		}
		f.conditions = append(f.conditions, c)
	}
	return errors.Join(errs...)
}

// use makes o's answers be checked against rules.
func (f *oracleFlags) use(rules *rule.Set, o *load.Options) {
	f.o.Rules, o.Return = rules, f.comeBack
	for _, r := range rules.Rules() {
		// The body distinguishes a refusal from an answer of the origin or of a node without a shard.
		if (r.Action == rule.ShadowBan || r.Response.Status == http.StatusServiceUnavailable) && r.Response.Body != "" {
			o.Bodies = append(o.Bodies, []byte(r.Response.Body))
		}
	}
}

// report returns the report of a run, with a score if there are rules.
func (f *oracleFlags) report(l *load.Log) (*load.Report, error) {
	r := l.Report()
	if f.o.Rules == nil {
		return r, nil
	}
	var err error
	r.Score, err = l.Score(f.o)
	return r, err
}

// judge returns an error for each condition that holds, for conditions about rules that were not judged,
// and for a run to which no rule applies.
func (f *oracleFlags) judge(r *load.Report) error {
	var errs []error
	if s := r.Score; s != nil {
		if len(f.conditions) > 0 && len(s.NotJudged) > 0 {
			errs = append(errs, fmt.Errorf("--fail-if: cannot judge %s", strings.Join(s.NotJudged, "; ")))
		}
		for _, fault := range s.Faults {
			if fault.Name == judge.NoRuleApplies {
				errs = append(errs, errors.New(fault.Text))
			}
		}
	}
	for _, c := range f.conditions {
		switch holds, err := c.Holds(r); {
		case err != nil:
			errs = append(errs, err)
		case holds:
			errs = append(errs, fmt.Errorf("--fail-if: %s (was %s)", c, c.Was(r)))
		}
	}
	return errors.Join(errs...)
}
