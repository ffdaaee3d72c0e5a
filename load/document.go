package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/load/judge"
)

// Document returns the report in a form for people and programs.
func (r *Report) Document() chart.Document {
	s := r.Sending
	lead := fmt.Sprintf("%s in %s to %s", chart.Count(s.Requests, "request"), seconds(r.DurationS),
		strings.Join(r.Targets, ", "))
	sent := chart.Section{Title: "Requests and responses"}
	say := func(is bool, format string, args ...any) {
		if is {
			sent.Blocks = append(sent.Blocks, chart.Paragraph(fmt.Sprintf(format, args...)))
		}
	}
	say(r.Interrupted, "The run was interrupted before its end.")
	say(r.GaveUp, "The run ended early: no request was answered.")
	say(r.Full, "The run ended when it reached --requests.")
	say(!s.Kept, "COULD NOT KEEP THE RATE: %s late by more than 10 ms (%s because this machine was too slow, "+
		"the others because no connection was free), %s not sent.",
		chart.Count(s.Late, "request"), chart.Grouped(s.OwnLate), chart.Grouped(s.Unsent))
	var facts chart.Facts
	facts.Add("requests", s.Requests, "%s/s in %s%s", chart.Grouped(int64(math.Round(s.RatePerS))), seconds(r.DurationS),
		chart.When(s.Held > 0, "; %s more not sent: their clients waited for their Retry-After", chart.Grouped(s.Held)))
	facts.Add("connections", s.Connections, "")
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		n := r.Statuses[status]
		facts.Add("answered "+status, n, "%s", chart.Percent(n, s.Requests))
	}
	if len(r.Statuses) == 0 {
		facts = append(facts, chart.Fact{Name: "responses", Value: "none"})
	} else {
		facts = append(facts,
			chart.Fact{Name: "median latency", Value: millis(r.Latency.P50MS), Note: "from when requests were due"},
			chart.Fact{Name: "99th percentile", Value: millis(r.Latency.P99MS), Note: "the slowest: " + millis(r.Latency.MaxMS)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Failures)) {
		facts.Add("failures", r.Failures[name], "%s%s%s", strings.ReplaceAll(name, "_", " "),
			chart.When(r.Examples[name] != "", "; the first: %s", r.Examples[name]),
			chart.When(name == failureNames[judge.Closed] && s.ClosedReused > 0,
				"; %s on reused connections, which the target may have closed before it read the request",
				chart.Grouped(s.ClosedReused)))
	}
	sent.Blocks = append(sent.Blocks, facts, r.Timeline.area(r.Began), r.Timeline.latencies(r.Began))
	latencies := chart.Table{Title: "Latency", Columns: chart.Columns("from", "mean", "p50", "p90", "p99", "p99.9", "max")}
	if len(r.Statuses) > 0 {
		r.Latency.addTo(&latencies, "when they were due")
		r.Service.addTo(&latencies, "when they were sent")
	}
	nodes := chart.Table{Title: "Nodes", Columns: chart.Columns("node", "requests", "refused", "p50", "p99", "max")}
	for _, n := range r.Nodes {
		nodes.Add(n.Name, n.Requests, n.Refused, millis(n.Latency.P50MS), millis(n.Latency.P99MS), millis(n.Latency.MaxMS))
	}
	nodes.Columns[0].Sent = true
	parts := chart.Table{Title: "Parts of the traffic", Columns: chart.Columns("part", "requests", "refused", "failed")}
	for _, c := range r.Components {
		parts.Add(c.Name, c.Requests, c.Refused, c.Failed).Note = chart.When(c.Attack, "attack")
	}
	sent.Blocks = append(sent.Blocks, latencies, r.Timeline.byNode(r.Began, r.Nodes), nodes, parts)
	d := chart.Document{Title: "Load", Data: r, Lead: lead, Sections: []chart.Section{sent}}
	if r.Score != nil {
		d.Sections = append(d.Sections, scoreSection(r.Score))
	}
	return d
}

// area returns requests and refusals over time.
func (t Timeline) area(began time.Time) chart.Area {
	step := time.Duration(t.StepS) * time.Second
	a := chart.Area{Title: "Requests and refusals", Note: "UTC, in steps of " + chart.Span(step), From: began, Step: step,
		Name: "requests in " + chart.Span(step)}
	for _, p := range t.Points {
		a.Requests, a.Refused = append(a.Requests, p.Requests), append(a.Refused, p.Refused)
	}
	return a
}

var (
	utc          = chart.Axis{Name: "UTC", Scale: chart.Time}
	milliseconds = chart.Axis{Name: "ms", Scale: chart.Logarithmic, Format: millis}
)

// latencies returns latencies over time.
func (t Timeline) latencies(began time.Time) chart.Block {
	var p50, p99, most []float64
	for _, p := range t.Points {
		p50, p99, most = append(p50, p.P50MS), append(p99, p.P99MS), append(most, p.MaxMS)
	}
	return chart.Lines{
		Title: "Latency over time", X: utc, Y: milliseconds, What: "latency", Quiet: true,
		Note: "From when requests were due, for those sent in a step of " + chart.Span(time.Duration(t.StepS)*time.Second) +
			".",
		Lines: []chart.Line{t.line(began, "p50", p50), t.line(began, "p99", p99), t.line(began, "max", most)},
	}
}

// line returns a line of latencies by step; 0 means that there was no response.
func (t Timeline) line(began time.Time, name string, ms []float64) chart.Line {
	l := chart.Line{Name: name}
	for i, y := range ms {
		if y > 0 {
			l.Points = append(l.Points, chart.LinePoint{X: float64(began.Unix() + int64(i)*t.StepS), Y: y})
		}
	}
	return l
}

// maxLines is the maximum number of nodes that get a line.
const maxLines = 6

// byNode returns the latencies of several nodes over time.
func (t Timeline) byNode(began time.Time, nodes []NodeCount) chart.Block {
	l := chart.Lines{Title: "99th percentile latency by node", X: utc, Y: milliseconds, What: "node", Quiet: true}
	if len(nodes) < 2 {
		return l
	}
	if len(nodes) > maxLines {
		l.Note = fmt.Sprintf("The first %d of %d nodes.", maxLines, len(nodes))
	}
	for _, node := range nodes[:min(len(nodes), maxLines)] {
		l.Lines = append(l.Lines, t.line(began, node.Name, node.P99MS))
	}
	return l
}

// scoreSection returns the judge's findings.
func scoreSection(s *judge.Score) chart.Section {
	p := chart.Section{Title: "Correctness",
		Blocks: []chart.Block{chart.Paragraph("Answers are compared with an exact log of every client. " +
			"A difference is explained by the estimate or by the lag of counts and mitigations; otherwise it is a fault.")}}
	outcome := func(ok bool, format string, args ...any) {
		p.Blocks = append(p.Blocks, chart.Check{OK: ok, Text: fmt.Sprintf(format, args...)})
	}
	for _, rule := range s.NotJudged {
		outcome(false, "NOT JUDGED: %s", rule)
	}
	for _, shed := range s.Shed {
		if shed.NotJudged != "" {
			outcome(false, "NOT JUDGED: how much %s lets through: %s", shed.Rule, shed.NotJudged)
		}
	}
	if len(s.Faults) == 0 {
		outcome(true, "faults: none; the estimate and the lag explain every difference")
	}
	for _, f := range s.Faults {
		outcome(false, "FAULT: %s: %s: %s%s", f.Name, chart.Count(f.Requests, "request"), f.Text,
			chart.When(len(f.Clients) > 0, " (%s)", strings.Join(f.Clients, ", ")))
	}
	var facts chart.Facts
	facts.Add("matched", s.Requests, "requests matched by a rule")
	facts.Add("refused", s.Refused, "%s by an exact limiter", chart.Grouped(s.Exact))
	facts.Add("innocent refused", s.InnocentRefused,
		"from clients that never exceed a threshold; %s from clients that only the estimate puts over a threshold",
		chart.Grouped(s.InnocentByEstimate))
	explained := func(name string, d judge.Disagreement) {
		facts.Add(name, d.Requests, "%s", chart.When(d.Requests > 0, "the estimate explains %s, the lag %s; %s unexplained",
			chart.Grouped(d.Estimate), chart.Grouped(d.Lag), chart.Grouped(d.Unexplained)))
	}
	explained("wrongly refused", s.WronglyRefused)
	explained("wrongly allowed", s.WronglyAllowed)
	if s.BystandersRefused > 0 {
		facts.Add("bystanders refused", s.BystandersRefused,
			"of %s refused because of a key that they share; legitimate clients lost %s of their %s that way",
			chart.Count(s.Bystanders, "client"), chart.Grouped(s.LegitimateRefused),
			chart.Count(s.LegitimateRequests, "request"))
	}
	if s.AttackRequests > 0 {
		facts.Add("attack passed", s.LetThroughBefore+s.LetThroughAfter,
			"of %s: %s before the client crossed a threshold, %s after; %s never refused",
			chart.Count(s.AttackRequests, "request"),
			chart.Grouped(s.LetThroughBefore), chart.Grouped(s.LetThroughAfter), chart.Count(s.AttackNotRefused, "client"))
	}
	if s.Refused > 0 {
		facts = append(facts, retryAfter(s.RetryAfter))
	}
	if n := s.Unknown + s.Unavailable; n > 0 {
		facts.Add("uncertain", n, "%s answered neither by the origin nor by a rule, which may or may not have been counted; "+
			"%s refused because a shard was unavailable", chart.Count(s.Unknown, "request"), chart.Grouped(s.Unavailable))
	}
	overshoot := chart.Table{Title: "What clients that crossed a threshold saw, with their own pauses between requests",
		Columns: chart.Columns("", "of", "p50", "p90", "p99", "max")}
	if o := s.Overshoot; o.Keys > 0 {
		overshoot.Add("requests beyond the threshold in a period", o.Keys, uint64(o.P50), uint64(o.P90),
			uint64(o.P99), uint64(o.Max))
	}
	if t := s.FirstRefusal; t.Keys > 0 {
		overshoot.Add("time from the crossing request to the first refusal", t.Keys, millis(t.P50), millis(t.P90),
			millis(t.P99), millis(t.Max))
	}
	rules := chart.Table{Title: "Rules",
		Columns: chart.Columns("rule", "refused", "by exact counts", "innocent", "innocent but for the estimate")}
	for _, r := range s.Rules {
		rules.Add(r.Rule, r.Refused, r.ExactRefused, r.InnocentRefused, r.InnocentByEst)
	}
	sheds := chart.Table{Title: "Requests passed by rules that shed",
		Columns: chart.Columns("rule", "keys over", "passed", "expected", "tolerance")}
	for _, r := range s.Shed {
		sheds.Add(r.Rule, r.Keys, r.Passed, uint64(r.Expected), uint64(r.Tolerance))
	}
	p.Blocks = append(p.Blocks, facts, overshoot, rules, sheds)
	return p
}

// retryAfter describes how accurate Retry-After was.
func retryAfter(r judge.RetryAfter) chart.Fact {
	f := chart.Fact{Name: "Retry-After", Value: "not checked"}
	if r.Checked+r.Compared == 0 {
		return f
	}
	f.Value = chart.Grouped(r.Compared - r.TooShort - r.TooLong)
	f.Note = "as long as the mitigation, of " + chart.Count(r.Compared, "refusal")
	if r.Checked == 0 {
		f.Note += "; not checked whether clients that return then pass, since none returned"
	} else {
		f.Note += fmt.Sprintf("; correct for %s of %s that returned when told to", chart.Grouped(r.Checked-r.Untrue),
			chart.Grouped(r.Checked))
	}
	return f
}

func (l Latency) addTo(t *chart.Table, from string) {
	t.Add(from, millis(l.MeanMS), millis(l.P50MS), millis(l.P90MS), millis(l.P99MS), millis(l.P999MS), millis(l.MaxMS))
}

// seconds formats the length of a run, which may be very short.
func seconds(s float64) string {
	if s < 1 {
		return millis(1000 * s)
	}
	return fmt.Sprintf("%.1f s", s)
}

func millis(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
