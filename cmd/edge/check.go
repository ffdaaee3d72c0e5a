package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func newCheck() *cobra.Command {
	var o worst
	var asJSON, schema bool
	var tests []string
	var nodes int
	flags := []setting.Setting{
		{Name: "json", Value: setting.Bool(&asJSON, false), Help: "write JSON, including errors"},
		{Name: "test", Value: repeatable(setting.List(&tests, nil)), Help: "run the cases in this `file`; may be repeated"},
		{Name: "schema", Value: setting.Bool(&schema, false), Help: "write only the JSON Schema of rules files, for editors"},
		{Name: "rate", Value: setting.Parsed("rate", &o.rate, "500", setting.Number(0, 1e9)), Help: "requests per second of one key, for the worst case", Contradicts: "test"},
		{Name: "lag", Value: setting.Parsed("duration", &o.lag, "100ms", setting.Span(0, time.Hour)), Help: "time until every node knows of a mitigation, for the worst case; the default holds even on saturated nodes, see edge_counting_lag_seconds", Contradicts: "test"},
		{Name: "answer-time", Value: setting.Parsed("duration", &o.answer, "100ms", setting.Span(0, time.Hour)), Help: "time that the origin takes to respond, for the worst case", Contradicts: "test"},
		{Name: "max-nodes", Value: setting.Int(&nodes, counter.MinNodes, 1, pop.MaxNodes, "nodes"), Help: "maximum number of nodes at the same time, as in the nodes' settings; the counters of limits with sub_windows need room for all of them", Contradicts: "test"},
	}
	cmd := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check rules and explain what they mean",
		Long: `Check rules, explain each in a sentence, and compute how many requests each lets through in
the worst case. The exit status is 1 if a rule is invalid. A directory stands for the .yaml
and .yml files in it; all files together are one set.

The worst case is that of docs/design.md: at most 2·(threshold + K) + 1 requests of a key pass
in any period. K is rate × lag, or rate × (lag + answer time) for a rule that counts responses.
A request with several values of a characteristic counts
under each combination of them, up to 4. Notes say which requests evade a rule.

For a limit with sub_windows, check shows the number and length of its sub-windows, and the
thresholds and number of nodes that its layout has room for. Room for fewer nodes than
--max-nodes is an error, as it is when a node starts.

With --test, run the test cases in a file against a node and report those that fail. A case
is a list of requests with times and expected verdicts. The rules are the FILE arguments, or
else those named in the test file.`,
		Example: `  edge check rules.yaml
  edge check --rate 2000 --lag 25ms rules.d
  edge check --max-nodes 40 rules.yaml
  edge check --json rules.yaml | jq '.rules[].limits'
  edge check --test cases.yaml
  edge check --schema > rules.schema.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			switch {
			case schema && (len(files) > 0 || asJSON || tests != nil):
				return usageError{errors.New("--schema takes no files"), "edge check --schema > rules.schema.json"}
			case !schema && tests == nil && len(files) == 0:
				return usageError{errors.New("no rules file given"), firstExample(cmd)}
			}
			out := cmd.OutOrStdout()
			if schema {
				_, err := out.Write(rulefile.Schema)
				return err
			}
			if tests != nil {
				return checkTests(out, tests, files, asJSON)
			}
			rules, err := rulefile.Read(files...)
			if err == nil {
				err = rulefile.CheckNodes(rules.Set, nodes)
			}
			if asJSON {
				return checkJSON(out, rules, err, o.late)
			}
			if err != nil {
				return err
			}
			checkText(out, rules, o)
			return nil
		},
	}
	define(cmd.Flags(), flags)
	return cmd
}

// worst holds the parameters of a worst case.
type worst struct {
	rate        float64 // requests per second of one key
	lag, answer time.Duration
}

// ordinaryRate is the rate, in requests per second, of a second worst case for rules that count responses. --rate is that
// of an attack, whose responses are mostly withheld.
const ordinaryRate = 5

// late returns the cost of the requests that pass between the one that crosses a threshold of r and
// the time when every node knows.
func (o worst) late(r *rule.Rule) uint64 {
	lag := o.lag
	if r.CountsAnswer() {
		lag += o.answer
	}
	// Nanoseconds first: they are exact, and 0.007 s is not.
	return r.CostOf(uint64(math.Ceil(o.rate * float64(lag) / 1e9)))
}

// explain describes how worst cases are computed.
func (o worst) explain(set *rule.Set) string {
	text := fmt.Sprintf("Worst cases, with no counts lost, are 2·(threshold + K) + 1. K is the number of requests that pass before every node knows: "+
		"%v/s × %v, and where responses are counted %v/s × %v (--rate, --lag, --answer-time).",
		o.rate, o.lag, o.rate, o.lag+o.answer)
	if slices.ContainsFunc(set.Rules(), func(r *rule.Rule) bool { return r.CountsAnswer() }) {
		text += fmt.Sprintf(" A response counts even if the client does not wait for it or does not send its whole request. "+
			"While %d such requests of a key wait, further ones count only if the estimate exceeds half of a threshold. "+
			"Requests that the origin does not answer do not count.", limit.MaxAbandoned)
	}
	return text
}

// checkText writes a description of rules.
func checkText(w io.Writer, rules rulefile.Contents, o worst) {
	set := rules.Set
	for i, r := range set.Rules() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s:%d)\n", r.ID, r.File, r.Line)
		fmt.Fprintln(w, indent(wrap(describe.Rule(r), 88), "  "))
		for _, l := range r.Limits {
			if how := describe.Limit(l); how != "" {
				if l.SubWindows > 1 {
					how += fmt.Sprintf(", on at most %d nodes", l.Counted().Layout.MaxNodes())
				}
				fmt.Fprintf(w, "  %v: %s\n", l, how)
			}
			cost := r.CostOf(1)
			most, arithmetic := l.Bound(o.late(r), cost)
			each := ""
			if cost > 1 {
				each = fmt.Sprintf("%d, which is ", most)
			}
			if r.Action == rule.Shed {
				fmt.Fprintln(w, indent(wrap(fmt.Sprintf("about %[2]d requests of one key pass in any %[1]s; if its rate rises to n times the limit, up to 1 + ln n times as many pass in the first %[1]s",
					rule.FormatDuration(l.Period), l.Threshold), 88), "  "))
				continue
			}
			fmt.Fprintf(w, "  worst case%s in any %s: %s = %s%d requests of one key\n",
				chart.When(r.Action == rule.Log, ", if it were enforced,"), rule.FormatDuration(l.Period), arithmetic, each, most/cost)
			if r.CountsAnswer() && r.Action != rule.Log {
				ordinary := worst{ordinaryRate, o.lag, o.answer}
				most, _ := l.Bound(ordinary.late(r), cost)
				fmt.Fprintf(w, "  at an ordinary rate of %d/s: %d; of responses that match, a client gets at most %d from each node that is its proxy\n",
					ordinaryRate, most/cost, l.Threshold/cost+1)
			}
		}
		if plans, keys := set.Overridden(r); keys > 0 {
			fmt.Fprintf(w, "  overrides: %s with %s of thresholds; worst cases are those of other keys\n", chart.Count(keys, "key"), chart.Count(len(plans), "set"))
		}
		for _, note := range describe.Notes(set, r) {
			fmt.Fprintln(w, indent(wrap("note: "+note, 88), "  "))
		}
	}
	if len(set.Rules()) > 0 {
		fmt.Fprintln(w, "\n"+wrap(o.explain(set), 90))
	}
	if allowed, denied := set.Listed(); allowed+denied > 0 {
		if len(set.Rules()) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s never limited, %s always refused\n", chart.Count(allowed, "network"), chart.Count(denied, "network"))
	} else if len(set.Rules()) == 0 {
		fmt.Fprintln(w, "There are no rules: every request passes.")
	}
	for _, r := range rules.Disabled {
		fmt.Fprintf(w, "\n%s (%s:%d)\n  Disabled (enabled: false): it counts and refuses nothing.\n", r.ID, r.File, r.Line)
	}
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

// errorsIn returns the errors in err for JSON. Those without a place in a file have only a message.
func errorsIn(err error) []*rulefile.Error {
	all := []*rulefile.Error{}
	for _, err := range pop.SingleErrors(err) {
		e, ok := err.(*rulefile.Error)
		if !ok {
			e = &rulefile.Error{Message: prose.Message(err)}
		}
		all = append(all, e)
	}
	return all
}

// checkJSON is like checkText, but writes JSON, including the errors in wrong. It returns wrong and any write error.
func checkJSON(w io.Writer, rules rulefile.Contents, wrong error, late func(*rule.Rule) uint64) error {
	result := struct {
		Rules  []ruleJSON        `json:"rules"`
		Errors []*rulefile.Error `json:"errors"`
	}{[]ruleJSON{}, errorsIn(wrong)}
	if set := rules.Set; wrong == nil {
		for _, r := range set.Rules() {
			d := ruleJSON{r.ID, r.File, r.Line, describe.Rule(r), r.Action.String(), nil, append([]string{}, describe.Notes(set, r)...)}
			for _, l := range r.Limits {
				most, _ := l.Bound(late(r), r.CostOf(1))
				if r.Action == rule.Shed {
					most = 0
				}
				d.Limits = append(d.Limits, limitJSON{l.Threshold, int64(l.Period / time.Second), most})
			}
			result.Rules = append(result.Rules, d)
		}
	}
	return errors.Join(writeJSON(w, result, "  "), wrong)
}

// indent puts prefix before each line of text.
func indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(text, "\n", "\n"+prefix)
}

// wrap breaks text into lines of at most width characters, except for longer words.
func wrap(text string, width int) string { return strings.Join(chart.Wrapped(text, width), "\n") }
