package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// defaultSkew leaves 5 ms for the clocks beside the nodes' tick of 10 ms.
const defaultSkew = 15 * time.Millisecond

// judgeFlags configures which rules responses are checked against and what fails the run.
type judgeFlags struct {
	rules    []string
	o        load.JudgeOptions
	comeBack bool
	failIf   []string
	log      string

	conditions []*load.Condition
}

func (f *judgeFlags) settings() []setting.Setting {
	const rules = "rules"
	return []setting.Setting{
		{Group: "the judge", Name: rules, Value: setting.List(&f.rules, nil), Help: "rules `files` of the PoP, or directories of them", Sample: "rules.yaml"},
		{Name: "lag", Value: setting.Parsed("duration", &f.o.Lag, "500ms", setting.Span(1, unbounded)), Help: "maximum time until all nodes act on a count; longer is a fault", Needs: []string{rules}},
		{Name: "skew", Value: setting.Parsed("duration", &f.o.Skew, defaultSkew.String(), setting.Span(0, unbounded)), Help: "maximum difference between the nodes' clocks and this machine's, plus the nodes' tick of 10 ms", Needs: []string{rules}},
		{Name: "ipv4-prefix", Value: setting.Int(&f.o.Client.IPv4, 32, 1, 32, "bits"), Help: "leading `bits` of an IPv4 address that identify a client, as configured on the nodes", Needs: []string{rules}},
		{Name: "ipv6-prefix", Value: setting.Int(&f.o.Client.IPv6, 64, 1, 128, "bits"), Help: "the same for IPv6 addresses", Needs: []string{rules}},
		{Name: "come-back", Value: setting.Bool(&f.comeBack, true), Help: "let some refused clients wait for their Retry-After, and then retry", Needs: []string{rules}},
		{Name: "fail-if", Value: repeatable(setting.List(&f.failIf, nil)), Help: "exit with status 1 if this `condition` on a number of the JSON report is true: 'latency.p99_ms > 20', 'statuses.500 > 0'"},
		{Name: "log", Value: setting.Text(&f.log, "", nil), Help: "write what was sent to this `file`, as a log for edge replay"},
	}
}

// check reads rules and conditions.
func (f *judgeFlags) check(o *load.Options) error {
	var errs []error
	if len(f.rules) > 0 {
		rules, err := rulefile.Load(f.rules...)
		if err == nil {
			f.use(rules, o)
		}
		errs = append(errs, err)
	}
	for _, text := range f.failIf {
		c, err := load.ParseCondition(text, len(f.rules) > 0)
		if err != nil {
			errs = append(errs, fail("fail-if", "use the field names of --json; those of the score need --rules", "%s", prose.Message(err)))
		}
		f.conditions = append(f.conditions, c)
	}
	return errors.Join(errs...)
}

// use sets up o so that responses are checked against rules.
func (f *judgeFlags) use(rules *rule.Set, o *load.Options) {
	f.o.Rules, o.Return = rules, f.comeBack
	for _, r := range rules.Rules() {
		// The body distinguishes a refusal from an answer of the origin or of a node without a shard.
		if (r.Action.Hides() || r.Response.Status == http.StatusServiceUnavailable) && r.Response.Body != "" {
			o.Bodies = append(o.Bodies, []byte(r.Response.Body))
		}
	}
}

// verdict returns an error for each fault, for each condition that holds, and if conditions were given but some rules
// could not be judged.
func (f *judgeFlags) verdict(r *load.Report) error {
	var errs []error
	if s := r.Score; s != nil {
		if len(f.conditions) > 0 && len(s.NotJudged) > 0 {
			errs = append(errs, fmt.Errorf("--fail-if: cannot judge %s", strings.Join(s.NotJudged, "; ")))
		}
		for _, fault := range s.Faults {
			errs = append(errs, fmt.Errorf("fault %s: %s", fault.Name, fault.Text))
		}
	}
	for _, c := range f.conditions {
		holds, value, err := c.Holds(r)
		if holds {
			err = fmt.Errorf("--fail-if: %s (was %v)", c, value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
