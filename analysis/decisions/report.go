package decisions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/analysis/page"
)

// Document returns the report as a document.
func (r *Report) Document() page.Document {
	var decided uint64
	for i := range r.Rules {
		decided += r.Rules[i].Decisions
	}
	d := page.Document{
		Title: "What the nodes decided", Data: r,
		Lead: fmt.Sprintf("%s by %s about %.4g%% of the keys%s", page.Count(decided, "decision"), page.Count(len(r.Nodes), "node"), 100*r.Share, figure.Between(r.From, r.To)),
	}
	switch {
	case len(r.Rules) == 0:
	case slices.ContainsFunc(r.Rules, func(r RuleReport) bool { return r.Accuracy != nil }):
		d.Title = "How accurate decisions are"
		d.Sections = append(d.Sections, page.Section{Title: "How it is measured", Blocks: []page.Block{page.Paragraph(
			"A limiter with an exact log of each key's requests to all nodes decides the same requests without lag. A decision is wrong if only " +
				"one of the two refuses the request. The cause is the estimate if a limiter that estimates as nodes do, but without lag, " +
				"decides as the node did. Otherwise the cause is lag: the time from a request until all nodes act on it.")}})
	case slices.ContainsFunc(r.Rules, func(r RuleReport) bool { return r.Change != nil }):
		d.Title = "What the rules would have decided"
		d.Sections = append(d.Sections, page.Section{Title: "How it is determined", Blocks: []page.Block{page.Paragraph(
			"A limiter with the new limits decides the same requests. It estimates as nodes do, but without lag.")}})
	}
	for i := range r.Rules {
		d.Sections = append(d.Sections, r.Rules[i].section())
	}
	d.Sections = append(d.Sections, r.logs())
	return d
}

func (r *RuleReport) section() page.Section {
	facts := page.Facts{
		{Name: "decisions", Value: page.Grouped(r.Decisions), Note: "about requests of " + page.Count(r.Keys, "key")},
		{Name: "refused", Value: page.Grouped(r.Refused), Note: page.Percent(r.Refused, r.Decisions) + " of them, for " + page.Count(r.KeysRefused, "key")},
	}
	var bars page.Block = page.Paragraph("")
	if a := r.Accuracy; a != nil {
		facts = append(facts,
			page.Fact{Name: "an exact limiter refuses", Value: page.Grouped(a.Exact), Note: "an estimating one without lag: " + page.Grouped(a.Estimate)},
			page.Fact{Name: "wrong decisions", Value: fmt.Sprintf("%.4f%%", a.WrongPct), Note: "for " + page.Count(a.KeysWrong, "key")},
			page.Fact{Name: "wrongly allowed", Value: page.Grouped(a.WronglyAllowed.Requests), Note: a.WronglyAllowed.causes()},
			page.Fact{Name: "wrongly refused", Value: page.Grouped(a.WronglyRefused.Requests), Note: a.WronglyRefused.causes()},
		)
		share := func(w Wrong) string { return page.Percent(w.Requests, r.Decisions) }
		bars = page.Bars{Title: "Wrong decisions", Note: "share of the decisions", What: "decision", Parts: []string{"due to the estimate", "due to lag"}, Rows: []page.Bar{
			{Name: "wrongly allowed", Values: []uint64{a.WronglyAllowed.Estimate, a.WronglyAllowed.Lag}, Share: share(a.WronglyAllowed)},
			{Name: "wrongly refused", Values: []uint64{a.WronglyRefused.Estimate, a.WronglyRefused.Lag}, Share: share(a.WronglyRefused)},
		}}
	}
	title := r.Rule + ": " + strings.Join(r.Limits, " / ")
	if c := r.Change; c != nil {
		to := "removed"
		if len(c.Limits) > 0 {
			to = strings.Join(c.Limits, " / ")
		}
		title += " → " + to
		facts = append(facts,
			page.Fact{Name: "would be refused", Value: page.Grouped(c.Refused), Note: page.Percent(c.Refused, r.Decisions) + " of them, for " + page.Count(c.KeysRefused, "key")},
			page.Fact{Name: "newly refused", Value: page.Grouped(c.NewlyRefused), Note: "that passed"},
			page.Fact{Name: "newly allowed", Value: page.Grouped(c.NewlyAllowed), Note: "that were refused"},
		)
	}
	var notes []string
	if r.NotCompared {
		notes = append(notes, "Not compared: the rule sheds, and the log does not say which part of the key's clients a client is in.")
	}
	note := func(n uint64, format string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, page.Count(n, "request")))
		}
	}
	note(r.Other, "Not judged: %s refused for another key or by an operator.")
	note(r.Unavailable, "Not judged: %s refused because a shard was unavailable.")
	note(r.WarmUp, "Not judged: %s so early that they may depend on earlier lines, which are missing.")
	note(r.Assumed, "The origin's responses to %s are unknown because the requests were refused; each counts as much as the rule says.")
	return page.Section{Title: title, Blocks: []page.Block{facts, bars, page.Paragraph(strings.Join(notes, " "))}}
}

func (w Wrong) causes() string {
	return fmt.Sprintf("%s due to the estimate, %s due to lag", page.Grouped(w.Estimate), page.Grouped(w.Lag))
}

// logs returns the section about the logs that were read.
func (r *Report) logs() page.Section {
	table := page.Table{Title: "Nodes", Columns: []page.Column{{Name: "node", Sent: true}, {Name: "from (UTC)"}, {Name: "lines", Numbers: true}, {Name: "clock ahead by", Numbers: true}}}
	for _, n := range r.Nodes {
		row := page.Row{Cells: []string{n.Node, figure.Clock(n.From), page.Grouped(n.Lines), fmt.Sprintf("%.0f ms", n.AheadMS)}}
		if n.Rotated {
			row.Note = "earlier lines are missing"
		}
		table.Rows = append(table.Rows, row)
	}
	var notes []string
	note := func(ok bool, format string, args ...any) {
		if ok {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	note(r.Missing > 0, "The nodes could not write %s: figures are too low, and wrong where a count is missing.", page.Count(r.Missing, "line"))
	note(r.Malformed > 0, "Ignored as malformed: %s.", page.Count(r.Malformed, "line"))
	note(r.Unpaired > 0, "Counted, but not judged: %s whose decision is not in the log.", page.Count(r.Unpaired, "request"))
	note(len(r.NotInLog) > 0, "The log has no requests for these rules: %s.", strings.Join(r.NotInLog, ", "))
	return page.Section{Title: "Logs", Blocks: []page.Block{table, page.Paragraph(strings.Join(notes, " "))}}
}
