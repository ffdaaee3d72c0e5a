package load

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/load/judge"
)

// Sections returns the report as parts of a page.
func (r *Report) Sections() []page.Section {
	s := r.Sending
	sent := page.Section{
		Title: "What was sent",
		Figures: []page.Figure{
			{Name: "requests", Value: page.Grouped(s.Requests), Note: fmt.Sprintf("%.0f a second", s.RatePerS)},
			{Name: "connections", Value: page.Grouped(s.Connections)},
			{Name: "median latency", Value: millis(r.Latency.P50MS), Note: "from when they were due"},
			{Name: "99th percentile", Value: millis(r.Latency.P99MS)},
		},
	}
	if !s.Kept {
		sent.Lead = fmt.Sprintf("The rate could not be kept: %s late by more than 10 ms, %s of them because the generator's machine was too slow, and %s not sent.",
			page.Count(s.Late, "request"), page.Grouped(s.OwnLate), page.Grouped(s.Unsent))
	}
	if r.Interrupted {
		sent.Lead += " It was interrupted before its end."
	}
	latencies := page.Table{Title: "Latencies", Columns: []page.Column{
		{Name: "from"}, {Name: "p50", Numbers: true}, {Name: "p90", Numbers: true}, {Name: "p99", Numbers: true}, {Name: "p99.9", Numbers: true}, {Name: "max", Numbers: true},
	}}
	for _, l := range []struct {
		from string
		Latency
	}{{"when they were due", r.Latency}, {"when they were sent", r.Service}} {
		latencies.Rows = append(latencies.Rows, page.Row{Cells: []string{l.from, millis(l.P50MS), millis(l.P90MS), millis(l.P99MS), millis(l.P999MS), millis(l.MaxMS)}})
	}
	sent.Blocks = []page.Block{r.Timeline.area(r.Began), latencies, r.parts(), r.nodes()}
	if r.Score == nil {
		return []page.Section{sent}
	}
	return []page.Section{scoreSection(r.Score), sent}
}

// area returns requests and refusals over time.
func (t Timeline) area(began time.Time) page.Area {
	a := page.Area{
		Title: "Requests and refusals", From: began, Step: time.Duration(t.StepS) * time.Second,
		AllName: "requests", PartName: "refused", PartIsRefusals: true,
	}
	for _, p := range t.Points {
		a.All, a.Part = append(a.All, p.Requests), append(a.Part, p.Refused)
	}
	return a
}

func (r *Report) parts() page.Table {
	t := page.Table{Title: "Parts of the traffic", Columns: []page.Column{
		{Name: "part"}, {Name: "meant to be refused"}, {Name: "requests", Numbers: true}, {Name: "refused", Numbers: true}, {Name: "failed", Numbers: true},
	}}
	for _, c := range r.Components {
		t.Rows = append(t.Rows, page.Row{Cells: []string{c.Name, map[bool]string{true: "yes", false: "no"}[c.Attack], page.Grouped(c.Requests), page.Grouped(c.Refused), page.Grouped(c.Failed)}})
	}
	return t
}

func (r *Report) nodes() page.Table {
	t := page.Table{Title: "Nodes", Columns: []page.Column{{Name: "node"}, {Name: "requests", Numbers: true}, {Name: "refused", Numbers: true}}}
	for _, n := range r.Nodes {
		t.Rows = append(t.Rows, page.Row{Cells: []string{n.Name, page.Grouped(n.Requests), page.Grouped(n.Refused)}})
	}
	return t
}

// scoreSection returns what the oracle found.
func scoreSection(s *judge.Score) page.Section {
	p := page.Section{
		Title: "What was right",
		Lead:  "Held against an exact log of every client. A difference from it is explained by the estimate, by the lag of counts and mitigations, or by nothing: then it is a fault.",
		Figures: []page.Figure{
			{Name: "innocent refused", Value: page.Grouped(s.InnocentRefused), Note: page.Grouped(s.InnocentByEstimate) + " more by the estimate"},
			{Name: "refused", Value: page.Grouped(s.Refused), Note: page.Grouped(s.Exact) + " by exact counts"},
			{Name: "wrongly refused", Value: page.Grouped(s.WronglyRefused.Requests)},
			{Name: "wrongly allowed", Value: page.Grouped(s.WronglyAllowed.Requests)},
			{Name: "faults", Value: fmt.Sprint(len(s.Faults))},
		},
	}
	if len(s.Faults) > 0 {
		faults := page.Table{Title: "Faults", Columns: []page.Column{{Name: "fault"}, {Name: "requests", Numbers: true}, {Name: "what it is"}}}
		for _, f := range s.Faults {
			faults.Rows = append(faults.Rows, page.Row{Cells: []string{f.Name, page.Grouped(f.Requests), f.Text}, Strong: true})
		}
		p.Blocks = append(p.Blocks, faults)
	}
	causes := page.Bars{Title: "What explains the differences", Parts: []string{"wrongly allowed", "wrongly refused"}}
	for _, c := range []struct {
		name             string
		allowed, refused uint64
	}{
		{"the estimate", s.WronglyAllowed.Estimate, s.WronglyRefused.Estimate},
		{"the lag", s.WronglyAllowed.Lag, s.WronglyRefused.Lag},
		{"nothing", s.WronglyAllowed.Unexplained, s.WronglyRefused.Unexplained},
	} {
		causes.Rows = append(causes.Rows, page.Bar{Name: c.name, Values: []uint64{c.allowed, c.refused}, Note: page.Grouped(c.allowed + c.refused)})
	}
	reaction := page.Table{Title: "How the guilty fared", Columns: []page.Column{{Name: ""}, {Name: "of", Numbers: true}, {Name: "median", Numbers: true}, {Name: "p99", Numbers: true}, {Name: "most", Numbers: true}}}
	for _, t := range []struct {
		name string
		judge.Times
	}{{"until the first refusal", s.FirstRefusal}, {"until no node let another through", s.AllRefuse}} {
		reaction.Rows = append(reaction.Rows, page.Row{Cells: []string{t.name, page.Grouped(t.Clients), millis(t.P50), millis(t.P99), millis(t.Max)}})
	}
	o := s.Overshoot
	reaction.Rows = append(reaction.Rows, page.Row{Cells: []string{"requests beyond the threshold in a period", page.Grouped(o.Keys), fmt.Sprint(o.P50), fmt.Sprint(o.P99), fmt.Sprint(o.Max)}})
	rules := page.Table{Title: "Rules", Columns: []page.Column{
		{Name: "rule"}, {Name: "refused", Numbers: true}, {Name: "by exact counts", Numbers: true}, {Name: "innocent", Numbers: true}, {Name: "innocent but for the estimate", Numbers: true},
	}}
	for _, r := range s.Rules {
		rules.Rows = append(rules.Rows, page.Row{Cells: []string{r.Rule, page.Grouped(r.Refused), page.Grouped(r.ExactRefused), page.Grouped(r.InnocentRefused), page.Grouped(r.InnocentByEst)}})
	}
	p.Blocks = append(p.Blocks, causes, reaction, rules)
	return p
}
