package decisions

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
)

// Document returns the report as a document.
func (r *Report) Document() chart.Document {
	var decided uint64
	for i := range r.Rules {
		decided += r.Rules[i].Decisions
	}
	d := chart.Document{
		Title: "What the nodes decided", Data: r,
		Lead: fmt.Sprintf("%s by %s about %.4g%% of the keys%s", chart.Count(decided, "decision"),
			chart.Count(len(r.Nodes), "node"), 100*r.Share, figure.Between(r.From, r.To)),
	}
	switch {
	case slices.ContainsFunc(r.Rules, func(r RuleReport) bool { return r.Accuracy != nil }):
		d.Title = "How accurate decisions are"
		d.Sections = append(d.Sections, chart.Section{Title: "How it is measured", Blocks: []chart.Block{chart.Paragraph(
			"As a reference, a limiter with an exact log of each key's requests to all nodes handles the same requests " +
				"without lag. A decision is wrong if only one of the two refuses the request. The cause is the " +
				"estimate if a limiter that estimates as nodes do, but without lag, decides as the node did. " +
				"Otherwise the cause is lag: the time from a request until all nodes act on it.")}})
	case slices.ContainsFunc(r.Rules, func(r RuleReport) bool { return r.Change != nil }):
		d.Title = "What the rules would have decided"
		d.Sections = append(d.Sections, chart.Section{Title: "How it is determined", Blocks: []chart.Block{chart.Paragraph(
			"The requests were replayed against a limiter with the new limits. It estimates as nodes do, but without lag.")}})
	}
	for i := range r.Rules {
		d.Sections = append(d.Sections, r.Rules[i].section())
	}
	d.Sections = append(d.Sections, r.logs())
	return d
}

func (r *RuleReport) section() chart.Section {
	var facts chart.Facts
	facts.Add("decisions", r.Decisions, "about requests of %s", chart.Count(r.Keys, "key"))
	refused := func(name string, n, keys uint64) {
		facts.Add(name, n, "%s of them, for %s", chart.Percent(n, r.Decisions), chart.Count(keys, "key"))
	}
	refused("refused", r.Refused, r.KeysRefused)
	if a := r.Accuracy; a != nil {
		facts.Add("an exact limiter refuses", a.Exact, "an estimating one without lag: %s", chart.Grouped(a.Estimate))
		facts = append(facts, chart.Fact{Name: "wrong decisions", Value: fmt.Sprintf("%.4f%%", a.WrongPct),
			Note: "for " + chart.Count(a.KeysWrong, "key")})
		for i, w := range []Wrong{a.WronglyAllowed, a.WronglyRefused} {
			name := []string{"wrongly allowed", "wrongly refused"}[i]
			facts.Add(name, w.Requests, "%s due to the estimate, %s due to lag", chart.Grouped(w.Estimate), chart.Grouped(w.Lag))
		}
	}
	title := r.Rule + ": " + strings.Join(r.Limits, " / ")
	if c := r.Change; c != nil {
		title += " → " + cmp.Or(strings.Join(c.Limits, " / "), "removed")
		refused("would be refused", c.Refused, c.KeysRefused)
		facts.Add("newly refused", c.NewlyRefused, "that passed")
		facts.Add("newly allowed", c.NewlyAllowed, "that were refused")
	}
	var notes prose.Phrases
	notes.AddIf(r.NotCompared, "Not compared: the rule's action is shed, and the log does not record which clients it "+
		"would refuse.")
	note := func(n uint64, format string) { notes.AddIf(n > 0, format, chart.Count(n, "request")) }
	note(r.Other, "Not judged: %s refused for another key or by an operator.")
	note(r.Unavailable, "Not judged: %s refused because a shard was unavailable.")
	note(r.WarmUp, "Not judged: %s so early that they may depend on earlier lines, which are missing.")
	note(r.Assumed, "The origin's responses to %s are unknown because the requests were refused; each counts as much as "+
		"the rule says.")
	return chart.Section{Title: title, Blocks: []chart.Block{facts, chart.Paragraph(strings.Join(notes, " "))}}
}

// logs returns the section about the logs that were read.
func (r *Report) logs() chart.Section {
	table := chart.Table{Title: "Nodes", Columns: []chart.Column{{Name: "node", Sent: true}, {Name: "from (UTC)"},
		{Name: "lines", Numbers: true}, {Name: "clock ahead by", Numbers: true}}}
	for _, n := range r.Nodes {
		row := table.Add(n.Node, figure.Clock(n.From), n.Lines, fmt.Sprintf("%d ms", int(math.Round(n.AheadMS))))
		row.Note = chart.When(n.Rotated, "earlier lines are missing")
	}
	var notes prose.Phrases
	notes.AddIf(r.Missing > 0, "The nodes could not write %s: figures are too low, and wrong where a count is missing.",
		chart.Count(r.Missing, "line"))
	notes.AddIf(r.Malformed > 0, "Ignored as malformed: %s.", chart.Count(r.Malformed, "line"))
	notes.AddIf(r.Unpaired > 0, "Counted, but not judged: %s whose decision is not in the log.",
		chart.Count(r.Unpaired, "request"))
	notes.AddIf(len(r.NotInLog) > 0, "The log has no requests for these rules: %s.", strings.Join(r.NotInLog, ", "))
	return chart.Section{Title: "Logs", Blocks: []chart.Block{table, chart.Paragraph(strings.Join(notes, " "))}}
}
