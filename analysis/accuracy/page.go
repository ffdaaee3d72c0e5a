package accuracy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// Document returns the report as a document. traffic is included if it has any points.
func (r *Report) Document(traffic figure.Timeline) chart.Document {
	d := chart.Document{Title: "How accurate estimates are", Data: r,
		Lead: figure.Lead(r.Events, r.Clients, r.From, r.To)}
	d.Sections = []chart.Section{{Title: "How it is measured", Blocks: []chart.Block{
		chart.Paragraph("Each estimator is compared with the exact sliding log at every request. " +
			"Every request is counted; none is refused. A decision is wrong if only one of the two would refuse the request."),
		traffic.Plot("Traffic"),
	}}}
	for results := range figure.Runs(r.Results,
		func(a, b *Result) bool { return a.Limit == b.Limit && a.PeriodS == b.PeriodS }) {
		d.Sections = append(d.Sections, limitSection(results))
	}
	return d
}

// limitSection returns the results of one limit: the figures of the nodes' estimator, or of the first
// one if that is missing, and a comparison of all estimators.
func limitSection(results []Result) chart.Section {
	first := results[max(0, slices.IndexFunc(results, func(r Result) bool { return r.Estimator == weightedName }))]
	phases := cmp.Or(first.Phases, new(PhaseRange))
	over := func(format string, span ...any) string {
		return chart.When(phases.Tried > 0, "; "+format+" over %d window starts", append(span, phases.Tried)...)
	}
	var facts chart.Facts
	facts.Add("over in the exact log", first.ExactOver, "%s of the requests, from %s of %s clients",
		chart.Percent(first.ExactOver, first.Requests), chart.Grouped(first.SourcesExactOver), chart.Grouped(first.Sources))
	facts = append(facts,
		chart.Fact{Name: "near the threshold", Value: fmt.Sprintf("%.4g%%", first.NearPct),
			Note: "of the requests, between half and twice the threshold: nearly all wrong decisions are about these"},
		chart.Fact{Name: "wrong decisions", Value: fmt.Sprintf("%.4f%%", first.WrongPct),
			Note: fmt.Sprintf("%s wrongly allowed, %s wrongly limited%s",
				chart.Grouped(first.WronglyAllowed), chart.Grouped(first.WronglyLimited),
				over("%.4f–%.4f%%", phases.WrongPct[0], phases.WrongPct[1]))},
		chart.Fact{Name: "mean difference", Value: fmt.Sprintf("%.2f%%", 100*first.MeanAbsRelErr),
			Note: fmt.Sprintf("from the exact count, signed %+.2f%%; %.2f%% for the average client%s",
				100*first.MeanSignedRelErr, 100*first.MeanAbsRelErrPerSource,
				over("%.2f–%.2f%%", 100*phases.MeanAbsRelErr[0], 100*phases.MeanAbsRelErr[1]))})
	facts.Add("clients missed", uint64(first.SourcesOverButNeverLimited), "over, never limited%s%s",
		chart.When(first.SourcesOverButNeverLimited > 0, ", by up to %.0f%%", 100*first.MaxOvershootOfThose),
		over("%d–%d", phases.SourcesOverButNeverLimited[0], phases.SourcesOverButNeverLimited[1]))
	facts.Add("clients wrongly limited", uint64(first.SourcesLimitedButNeverOver), "never over%s%s",
		chart.When(first.SourcesLimitedButNeverOver > 0, "; the lowest peak is %.0f%% of the threshold",
			100*first.MinPeakOfThose),
		over("%d–%d", phases.SourcesLimitedButNeverOver[0], phases.SourcesLimitedButNeverOver[1]))
	scatter := chart.Lines{Title: "Error against memory", What: "estimators",
		Note:  "lower left is better; the line joins the estimators that no other beats",
		X:     chart.Axis{Name: "bytes per client, without keys", Scale: chart.Logarithmic},
		Y:     chart.Axis{Name: "wrong decisions, % of requests", Scale: chart.Logarithmic},
		Lines: []chart.Line{{Name: "not beaten"}, {Name: "beaten", Loose: true}}}
	table := chart.Table{Title: "Estimators", Note: "bars: wrong decisions",
		Keys: []chart.Key{{Name: "wrongly allowed", Color: chart.Blue}, {Name: "wrongly limited", Color: chart.Orange}},
		Columns: chart.Columns("estimator", "bytes/client", "wrong %", "allowed", "limited", "mean diff. %", "missed",
			"wrongly limited")}
	best := frontier(results)
	for i, r := range results {
		wrong := fmt.Sprintf("%.4f", r.WrongPct)
		if r.BytesPerClient > 0 {
			line := &scatter.Lines[1]
			if best[i] {
				line = &scatter.Lines[0]
			}
			line.Points = append(line.Points,
				chart.LinePoint{X: r.BytesPerClient, Y: r.WrongPct, Name: r.Estimator,
					Tip: fmt.Sprintf("%s\n%.0f bytes per client\n%s%% wrong: %s allowed, %s limited", r.Estimator,
						r.BytesPerClient, wrong, chart.Grouped(r.WronglyAllowed), chart.Grouped(r.WronglyLimited))})
		}
		row := table.Add(r.Estimator, fmt.Sprintf("%.0f", r.BytesPerClient), wrong, r.WronglyAllowed, r.WronglyLimited,
			fmt.Sprintf("%.2f", 100*r.MeanAbsRelErr), r.SourcesOverButNeverLimited, r.SourcesLimitedButNeverOver)
		row.Bar = []uint64{r.WronglyAllowed, r.WronglyLimited}
		if row.Strong = best[i]; row.Strong {
			row.Note = "not beaten"
		}
	}
	return chart.Section{Title: fmt.Sprintf("%s requests in %s", chart.Grouped(first.Limit), figure.Period(first.PeriodS)),
		Blocks: []chart.Block{
			chart.Paragraph("The figures are those of the estimator " + first.Estimator + "."), facts,
			figure.PlotPeaks(results[0].Peaks, "clients", first.Limit, first.PeriodS), scatter, table,
			chart.Paragraph("Not beaten: no other estimator decides better with as little memory."),
		}}
}

// frontier reports which results no other result beats: with fewer wrong decisions and no
// more memory, or no more wrong decisions and less memory.
func frontier(results []Result) []bool {
	best := make([]bool, len(results))
	for i, r := range results {
		best[i] = !slices.ContainsFunc(results, func(other Result) bool {
			better := other.WrongPct < r.WrongPct || other.BytesPerClient < r.BytesPerClient
			return better && other.WrongPct <= r.WrongPct && other.BytesPerClient <= r.BytesPerClient
		})
	}
	return best
}
