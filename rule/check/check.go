// Package check says what rules mean, and how many requests each lets through in the worst case.
package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// WorstCase holds the parameters of a worst case.
type WorstCase struct {
	Rate   float64       // requests per second of one key
	Lag    time.Duration // until every node knows of a mitigation
	Answer time.Duration // that the origin takes to respond
}

// Usual are the parameters that edge check takes by default.
var Usual = WorstCase{Rate: 500, Lag: 100 * time.Millisecond, Answer: 100 * time.Millisecond}

// ordinaryRate is the rate, in requests per second, of a second worst case for rules that count responses. Rate is
// that of an attack, whose responses are mostly withheld.
const ordinaryRate = 5

// late returns the cost of the requests that pass between the one that crosses a threshold of r and
// the time when every node knows.
func (o WorstCase) late(r *rule.Rule) uint64 {
	lag := o.Lag
	if r.CountsAnswer() {
		lag += o.Answer
	}
	// Nanoseconds first: they are exact, and 0.007 s is not.
	return r.CostOf(uint64(math.Ceil(o.Rate * float64(lag) / 1e9)))
}

// explain describes how worst cases are computed.
func (o WorstCase) explain(set *rule.Set) string {
	text := fmt.Sprintf("Worst cases, with no counts lost, are 2·(threshold + K) + 1. K is the number of requests that "+
		"pass before every node knows: %v/s × %v, and where responses are counted %v/s × %v (--rate, --lag, "+
		"--answer-time).", o.Rate, o.Lag, o.Rate, o.Lag+o.Answer)
	if slices.ContainsFunc(set.Rules(), func(r *rule.Rule) bool { return r.CountsAnswer() }) {
		text += fmt.Sprintf(" A response counts even if the client does not wait for it or does not send its whole "+
			"request. While %d such requests of a key wait, further ones count only if the estimate exceeds half of a "+
			"threshold. Requests that the origin does not answer do not count.", limit.MaxAbandoned)
	}
	return text
}

// Text describes rules.
func Text(rules rulefile.Contents, o WorstCase) string {
	var b strings.Builder
	set := rules.Set
	for i, r := range set.Rules() {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "%s (%s:%d)\n", r.ID, r.File, r.Line)
		fmt.Fprintln(&b, prose.Paragraph(describe.Rule(r), 88, "  "))
		for _, l := range r.Limits {
			if how := describe.Limit(l); how != "" {
				if l.SubWindows > 1 {
					how += fmt.Sprintf(", on at most %d nodes", l.Counted().Layout.MaxNodes())
				}
				fmt.Fprintf(&b, "  %v: %s\n", l, how)
			}
			if r.Action == rule.Shed {
				fmt.Fprintln(&b, prose.Paragraph(fmt.Sprintf("about %[2]d requests of one key pass in any %[1]s; if its rate "+
					"rises to n times the limit, up to 1 + ln n times as many pass in the first %[1]s",
					rule.FormatDuration(l.Period), l.Threshold), 88, "  "))
				continue
			}
			cost := r.CostOf(1)
			most, arithmetic := l.Bound(o.late(r), cost)
			inCost := chart.When(cost > 1, "%d, which is ", most)
			fmt.Fprintf(&b, "  worst case%s in any %s: %s = %s%d requests of one key\n",
				chart.When(!r.Action.Refuses(), ", if it were enforced,"), rule.FormatDuration(l.Period), arithmetic, inCost,
				most/cost)
			if r.CountsAnswer() && r.Action.Refuses() {
				ordinary := WorstCase{ordinaryRate, o.Lag, o.Answer}
				most, _ := l.Bound(ordinary.late(r), cost)
				fmt.Fprintf(&b, "  at an ordinary rate of %d/s: %d; a client gets at most %d matching responses "+
					"from each node that proxies for it\n",
					ordinaryRate, most/cost, l.Threshold/cost+1)
			}
		}
		if plans, keys := r.Overridden(); keys > 0 {
			fmt.Fprintf(&b, "  overrides: %s with %s of thresholds; worst cases are those of other keys\n",
				chart.Count(keys, "key"), chart.Count(len(plans), "set"))
		}
		for _, note := range describe.Notes(set, r) {
			fmt.Fprintln(&b, prose.Paragraph("note: "+note, 88, "  "))
		}
	}
	if len(set.Rules()) > 0 {
		fmt.Fprintln(&b, "\n"+prose.Paragraph(o.explain(set), 90, ""))
	}
	listed := map[rule.Access]int{}
	for _, access := range set.Entries() {
		listed[access]++
	}
	if len(listed) > 0 {
		if len(set.Rules()) > 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "%s never limited, %s always refused\n",
			chart.Count(listed[rule.Allowed], "network"), chart.Count(listed[rule.Denied], "network"))
	} else if len(set.Rules()) == 0 {
		fmt.Fprintln(&b, "There are no rules: every request passes.")
	}
	for _, r := range rules.Disabled {
		fmt.Fprintf(&b, "\n%s (%s:%d)\n  Disabled (enabled: false): it counts and refuses nothing.\n", r.ID, r.File, r.Line)
	}
	return b.String()
}

// A limitJSON is the JSON form of a limit.
type limitJSON struct {
	Threshold uint64 `json:"threshold"`
	PeriodS   int64  `json:"period_s"`
	WorstCase uint64 `json:"worst_case,omitempty"` // none with action: shed
}

// A ruleJSON is the JSON form of a rule.
type ruleJSON struct {
	ID      string      `json:"id"`
	File    string      `json:"file"`
	Line    int         `json:"line"`
	Meaning string      `json:"meaning"`
	Action  string      `json:"action"`
	Limits  []limitJSON `json:"limits"`
	Notes   []string    `json:"notes"`
}

// Errors returns the errors in err for JSON. Those without a place in a file have only a message.
func Errors(err error) []*rulefile.Error {
	all := []*rulefile.Error{}
	for _, err := range prose.SingleErrors(err) {
		e, ok := err.(*rulefile.Error)
		if !ok {
			e = &rulefile.Error{Message: prose.Message(err)}
		}
		all = append(all, e)
	}
	return all
}

// A Result is the JSON form of what rules mean, or of the errors in them.
type Result struct {
	Rules  []ruleJSON        `json:"rules"`
	Errors []*rulefile.Error `json:"errors"`
}

// NewResult returns the result for rules, or for the errors in wrong.
func NewResult(rules rulefile.Contents, wrong error, o WorstCase) Result {
	result := Result{[]ruleJSON{}, Errors(wrong)}
	if wrong != nil {
		return result
	}
	for _, r := range rules.Set.Rules() {
		notes := append([]string{}, describe.Notes(rules.Set, r)...)
		d := ruleJSON{r.ID, r.File, r.Line, describe.Rule(r), r.Action.String(), nil, notes}
		for _, l := range r.Limits {
			most, _ := l.Bound(o.late(r), r.CostOf(1))
			if r.Action == rule.Shed {
				most = 0
			}
			d.Limits = append(d.Limits, limitJSON{l.Threshold, int64(l.Period / time.Second), most})
		}
		result.Rules = append(result.Rules, d)
	}
	return result
}
