package analysis

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/pop/rule"
)

// Sections returns the report as parts of a page. traffic is shown at first, if it has any
// points.
func (r *AccuracyReport) Sections(traffic Timeline) []page.Section {
	sections := []page.Section{{
		Title: "How accurate estimates are",
		Lead: "Each estimator is compared with the exact sliding log at every request. Nobody is refused: every request is counted. " +
			"Wrong decisions are requests that one of the two would refuse and the other one would not.",
		Figures: []page.Figure{{Name: "requests", Value: page.Grouped(r.Events)}, {Name: "clients", Value: page.Grouped(uint64(r.Clients))}},
	}}
	if len(traffic.Points) > 0 {
		sections[0].Blocks = append(sections[0].Blocks, traffic.plot("Traffic"))
	}
	for i := 0; i < len(r.Results); {
		n := i + 1
		for n < len(r.Results) && r.Results[n].Limit == r.Results[i].Limit && r.Results[n].PeriodS == r.Results[i].PeriodS {
			n++
		}
		sections = append(sections, limitSection(r.Results[i:n]))
		i = n
	}
	return sections
}

// limitSection returns the results of one limit: the four numbers of the node's estimate,
// or of the first there is, and all estimators.
func limitSection(results []Result) page.Section {
	first := results[0]
	for _, r := range results {
		if r.Estimator == methodWeighted.name {
			first = r
		}
	}
	s := page.Section{
		Title: fmt.Sprintf("%s requests in %s", page.Grouped(first.Limit), rule.FormatDuration(time.Duration(first.PeriodS)*time.Second)),
		Lead: fmt.Sprintf("By the exact log %s requests (%.4g%%) of %s clients are over. %.4g%% of all are near the threshold, from half of it to twice: only those can well be decided wrongly. The figures are those of the estimator %s.",
			page.Grouped(first.ExactOver), percent(first.ExactOver, first.Requests), page.Grouped(uint64(first.SourcesExactOver)), first.NearPct, first.Estimator),
		Figures: []page.Figure{
			{Name: "wrong decisions", Value: fmt.Sprintf("%.4f%%", first.WrongPct), Note: fmt.Sprintf("%s wrongly allowed, %s wrongly limited", page.Grouped(first.WronglyAllowed), page.Grouped(first.WronglyLimited))},
			{Name: "mean difference", Value: fmt.Sprintf("%.2f%%", 100*first.MeanAbsRelErr), Note: fmt.Sprintf("from the exact number; signed %+.2f%%", 100*first.MeanSignedRelErr)},
			{Name: "clients missed", Value: page.Grouped(uint64(first.SourcesOverButNeverLimited)), Note: when(first.SourcesOverButNeverLimited > 0, "over by up to %.0f%%, never limited", 100*first.MaxOvershootOfThose)},
			{Name: "clients wrongly limited", Value: page.Grouped(uint64(first.SourcesLimitedButNeverOver)), Note: when(first.SourcesLimitedButNeverOver > 0, "never over, from %.0f%% of the threshold on", 100*first.MinPeakOfThose)},
		},
	}
	scatter := page.Scatter{Title: "Error against memory", Note: "to the lower left is better; no estimator beats those that are joined",
		XName: "bytes per client, without keys", YName: "wrong decisions, % of requests"}
	bars := page.Bars{Title: "Wrong decisions", Note: "share of all requests", Parts: []string{"wrongly allowed", "wrongly limited"}}
	table := page.Table{Title: "Estimators", Columns: []page.Column{
		{Name: "estimator"}, {Name: "bytes per client", Numbers: true}, {Name: "wrong %", Numbers: true}, {Name: "wrongly allowed", Numbers: true}, {Name: "wrongly limited", Numbers: true},
		{Name: "mean difference", Numbers: true}, {Name: "clients missed", Numbers: true}, {Name: "clients wrongly limited", Numbers: true},
	}}
	best := frontier(results)
	for i, r := range results {
		tip := fmt.Sprintf("%s\n%.0f bytes per client\n%.4f%% wrong: %s allowed, %s limited\nmean difference %.2f%%", r.Estimator, r.BytesPerClient, r.WrongPct,
			page.Grouped(r.WronglyAllowed), page.Grouped(r.WronglyLimited), 100*r.MeanAbsRelErr)
		if r.BytesPerClient > 0 {
			scatter.Points = append(scatter.Points, page.ScatterPoint{X: r.BytesPerClient, Y: r.WrongPct, Name: r.Estimator, Tip: tip, Best: best[i]})
		}
		bars.Rows = append(bars.Rows, page.Bar{Name: r.Estimator, Values: []uint64{r.WronglyAllowed, r.WronglyLimited}, Note: fmt.Sprintf("%.4f%%", r.WrongPct)})
		row := page.Row{Cells: []string{r.Estimator, fmt.Sprintf("%.0f", r.BytesPerClient), fmt.Sprintf("%.4f", r.WrongPct), page.Grouped(r.WronglyAllowed), page.Grouped(r.WronglyLimited),
			fmt.Sprintf("%.2f%%", 100*r.MeanAbsRelErr), page.Grouped(uint64(r.SourcesOverButNeverLimited)), page.Grouped(uint64(r.SourcesLimitedButNeverOver))}}
		if best[i] {
			row.Note, row.Strong = "not beaten", true
		}
		table.Rows = append(table.Rows, row)
	}
	s.Blocks = []page.Block{scatter, bars, table}
	return s
}
