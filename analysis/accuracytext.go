package analysis

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/pop/rule"
)

// WriteText writes the report as tables, for people.
func (r *AccuracyReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s%s\n\n", page.Count(r.Events, "request"), page.Count(r.Clients, "client"), between(r.From, r.To))
	for i := 0; i < len(r.Results); {
		n := i + 1
		for n < len(r.Results) && r.Results[n].Limit == r.Results[i].Limit && r.Results[n].PeriodS == r.Results[i].PeriodS {
			n++
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		writeLimit(&b, r.Results[i:n])
		i = n
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLimit writes the results of one limit: the four numbers of the node's estimate, or
// of the first there is, and a table of all.
func writeLimit(b *strings.Builder, results []Result) {
	first := results[0]
	for _, r := range results {
		if r.Estimator == methodWeighted.name {
			first = r
		}
	}
	fmt.Fprintf(b, "%s requests in %s\n\n", page.Grouped(first.Limit), rule.FormatDuration(time.Duration(first.PeriodS)*time.Second))
	fmt.Fprintf(b, "  over by the exact log    %s of %s requests (%.4g%%), of %s of %s clients\n", page.Grouped(first.ExactOver), page.Grouped(first.Requests),
		percent(first.ExactOver, first.Requests), page.Grouped(uint64(first.SourcesExactOver)), page.Grouped(uint64(first.Sources)))
	fmt.Fprintf(b, "  near the threshold       %.4g%% of requests, from half of it to twice: only those can well be decided wrongly\n\n", first.NearPct)
	fmt.Fprintf(b, "  estimator %s%s\n", first.Estimator, over(first.Phases, func(p *PhaseRange) string {
		return fmt.Sprintf("in parentheses: over %d beginnings of windows", p.Tried)
	}))
	fmt.Fprintf(b, "  wrong decisions          %.4f%%%s: %s wrongly allowed, %s wrongly limited\n", first.WrongPct,
		over(first.Phases, func(p *PhaseRange) string { return fmt.Sprintf("%.4f…%.4f%%", p.WrongPct[0], p.WrongPct[1]) }),
		page.Grouped(first.WronglyAllowed), page.Grouped(first.WronglyLimited))
	fmt.Fprintf(b, "  mean difference          %.2f%%%s from the exact number; %.2f%% for the mean client; signed %+.2f%%\n", 100*first.MeanAbsRelErr,
		over(first.Phases, func(p *PhaseRange) string {
			return fmt.Sprintf("%.2f…%.2f%%", 100*p.MeanAbsRelErr[0], 100*p.MeanAbsRelErr[1])
		}),
		100*first.MeanAbsRelErrPerSource, 100*first.MeanSignedRelErr)
	fmt.Fprintf(b, "  clients missed           %s%s%s\n", page.Grouped(uint64(first.SourcesOverButNeverLimited)),
		over(first.Phases, func(p *PhaseRange) string {
			return fmt.Sprintf("%d…%d", p.SourcesOverButNeverLimited[0], p.SourcesOverButNeverLimited[1])
		}),
		when(first.SourcesOverButNeverLimited > 0, ", that were over the threshold by up to %.0f%% and never limited", 100*first.MaxOvershootOfThose))
	fmt.Fprintf(b, "  clients wrongly limited  %s%s%s\n\n", page.Grouped(uint64(first.SourcesLimitedButNeverOver)),
		over(first.Phases, func(p *PhaseRange) string {
			return fmt.Sprintf("%d…%d", p.SourcesLimitedButNeverOver[0], p.SourcesLimitedButNeverOver[1])
		}),
		when(first.SourcesLimitedButNeverOver > 0, ", that never had more than %.0f%% of the threshold", 100*first.MinPeakOfThose))

	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\testimator\tbytes/client\twrong %\tallowed\tlimited\tmean diff. %\tmissed\twrongly limited\t")
	best := frontier(results)
	for i, r := range results {
		mark := " "
		if best[i] {
			mark = "*"
		}
		fmt.Fprintf(t, "\t%s %s\t%.0f\t%.4f\t%s\t%s\t%.2f\t%d\t%d\t\n", r.Estimator, mark, r.BytesPerClient, r.WrongPct,
			page.Grouped(r.WronglyAllowed), page.Grouped(r.WronglyLimited), 100*r.MeanAbsRelErr, r.SourcesOverButNeverLimited, r.SourcesLimitedButNeverOver)
	}
	t.Flush()
	b.WriteString("\n  * no other decides better in as little memory\n")
}

// frontier tells the results that no other one beats: fewer wrong decisions in as little
// memory, or as few in less.
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

// over says something of several phases, if they were tried.
func over(p *PhaseRange, say func(*PhaseRange) string) string {
	if p == nil {
		return ""
	}
	return " (" + say(p) + ")"
}

func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
