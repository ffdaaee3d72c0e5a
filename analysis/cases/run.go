package cases

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A Report has the results of a file of cases.
type Report struct {
	File  string   `json:"file"`
	OK    bool     `json:"ok"`
	Cases []Result `json:"cases"`
}

// A Result is the result of a case.
type Result struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	Requests uint64    `json:"requests"`
	OK       bool      `json:"ok"`
	Failures []Failure `json:"failures,omitempty"` // at most one per line of requests
}

// A Failure describes a line of requests whose expectation was not met.
type Failure struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Request string `json:"request"` // the requests of the line
	Client  string `json:"client"`

	// AtS is the time of the first failed request, in seconds since the beginning of the case,
	// and Number is its position among Count. If a number of refused requests is expected, AtS
	// is the time of the first request, and Number is 0.
	AtS    float64 `json:"at_s"`
	Number uint64  `json:"number"`
	Count  uint64  `json:"count"`
	Failed uint64  `json:"failed"` // number of failed requests

	Want string `json:"want"`
	Got  string `json:"got"`
}

// caseStart is the beginning of a window of every period that divides a day.
var caseStart = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Run sends the requests of each case to a node with rules, which knows every count immediately. It returns
// [strictyaml.Errors] if cases name rules that do not exist.
func (c *Cases) Run(rules *rule.Set) (*Report, error) {
	report := &Report{File: c.File, OK: true, Cases: []Result{}}
	if err := c.checkRules(rules); err != nil {
		return nil, err
	}
	for i := range c.cases {
		result, err := c.cases[i].run(rules)
		if err != nil {
			return nil, err
		}
		report.OK = report.OK && result.OK
		report.Cases = append(report.Cases, result)
	}
	return report, nil
}

// checkRules returns an error if cases name rules that do not exist.
func (c *Cases) checkRules(rules *rule.Set) error {
	ids := prose.Texts(rules.Rules(), func(r *rule.Rule) string { return r.ID })
	doc := strictyaml.New(c.File, c.text)
	for _, t := range c.cases {
		for _, g := range t.groups {
			if g.rule != "" && !slices.Contains(ids, g.rule) {
				doc.Fail(g.ruleAt, prose.Suggest(g.rule, ids), "there is no rule %q", g.rule)
			}
		}
	}
	return doc.Err()
}

// A groupRun is the state of a line of requests.
type groupRun struct {
	*requestGroup
	done    uint64 // number of requests sent so far
	refused uint64
	failure *Failure // the first one
}

// next returns the time of the next request.
func (g *groupRun) next() time.Duration { return g.at + g.every*time.Duration(g.done) }

func (t *testCase) run(rules *rule.Set) (Result, error) {
	result := Result{Name: t.name, Line: t.line}
	s, err := analysis.NewSimulation(analysis.PoPOptions{}, rules)
	if err != nil {
		return result, err
	}
	var runs []*groupRun
	for i := range t.groups {
		runs = append(runs, &groupRun{requestGroup: &t.groups[i]})
		result.Requests += t.groups[i].count
	}
	for range result.Requests {
		var g *groupRun // the next one; if several are due, the first in the file
		for _, run := range runs {
			if run.done < run.count && (g == nil || run.next() < g.next()) {
				g = run
			}
		}
		e := g.entry
		e.Time = caseStart.Add(g.next()).UnixMicro()
		d := s.Decide(&e)
		g.take(&d)
	}
	for _, g := range runs {
		g.end()
		if g.failure != nil {
			result.Failures = append(result.Failures, *g.failure)
		}
	}
	result.OK = result.Failures == nil
	return result, nil
}

// take checks the decision about the next request.
func (g *groupRun) take(d *limit.Decision) {
	at := g.next()
	g.done++
	if d.Verdict.Refused() {
		g.refused++
	}
	id := ""
	if d.Rule != nil {
		id = d.Rule.ID
	}
	verdict := d.Verdict.String()
	otherRule := g.rule != "" && id != g.rule && (g.expect != "" || d.Verdict.Refused())
	if !otherRule && (g.expect == "" || g.expect == verdict) {
		return
	}
	if g.failure == nil {
		g.fail(at, g.done, verdictBy(cmp.Or(g.expect, "refused"), g.rule), verdictBy(verdict, id))
	}
	g.failure.Failed++
}

// end compares the number of refused requests with the expected number.
func (g *groupRun) end() {
	want := g.requestGroup.refused
	if g.failure != nil || want == nil || *want == g.refused {
		return
	}
	g.fail(g.at, 0, fmt.Sprintf("%d of %d refused", *want, g.count), fmt.Sprintf("%d of %d refused", g.refused, g.count))
	g.failure.Failed = max(g.refused, *want) - min(g.refused, *want)
}

func (g *groupRun) fail(at time.Duration, number uint64, want, got string) {
	target := g.entry.Path
	if g.entry.Query != "" {
		target += "?" + g.entry.Query
	}
	g.failure = &Failure{
		Line: g.line, Column: g.column, Client: g.entry.Client, Request: g.entry.Method + " " + g.entry.Host + target,
		AtS: at.Seconds(), Number: number, Count: g.count, Want: want, Got: got,
	}
}

func verdictBy(verdict, id string) string {
	if id == "" {
		return verdict
	}
	return verdict + " by rule " + id
}

// Err returns an error with the number of failed cases, or nil if all passed.
func (r *Report) Err() error {
	failed := 0
	for _, c := range r.Cases {
		if !c.OK {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("cases: %s: %d of %s failed", r.File, failed, chart.Count(len(r.Cases), "case"))
}

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	requests := uint64(0)
	fmt.Fprintf(&b, "%s\n", r.File)
	for _, c := range r.Cases {
		requests += c.Requests
		if c.OK {
			continue
		}
		fmt.Fprintf(&b, "  FAILED: %s (line %d)\n", prose.Printable(c.Name), c.Line)
		for _, f := range c.Failures {
			f.write(&b, r.File)
		}
	}
	if r.OK {
		fmt.Fprintf(&b, "  SUCCESS: %s, %s\n", chart.Count(len(r.Cases), "case"), chart.Count(requests, "request"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Failure) write(b *strings.Builder, file string) {
	fmt.Fprintf(b, "    %s:%d:%d: %s of %s", file, f.Line, f.Column, prose.Printable(f.Request), f.Client)
	switch {
	case f.Number == 0:
		fmt.Fprintf(b, ", from %v on\n", figure.Lasting(f.AtS))
	case f.Count == 1:
		fmt.Fprintf(b, ", at %v\n", figure.Lasting(f.AtS))
	default:
		fmt.Fprintf(b, ", request %d of %d, at %v; %d of them failed\n", f.Number, f.Count, figure.Lasting(f.AtS), f.Failed)
	}
	fmt.Fprintf(b, "      want: %s\n      got:  %s\n", f.Want, f.Got)
}
