package accuracy_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/internal/trace"
)

// A fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatal(...any) }

// limits are those of the reference figures.
var limits = []accuracy.Limit{{10, 10e6}, {20, 60e6}, {50, 60e6}, {100, 60e6}, {300, 900e6}, {1000, 3600e6}}

func measure(t fataler, arrivals []accesslog.Arrival, o accuracy.Options) *accuracy.Report {
	a, err := accuracy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for len(arrivals) > 0 {
		n := min(len(arrivals), 10_000)
		if err := a.Add(arrivals[:n]); err != nil {
			t.Fatal(err)
		}
		arrivals = arrivals[n:]
	}
	report, err := accuracy.Merge([]*accuracy.Part{a.Part()})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// inPercent converts a figure to percent like the reference tables, which were made from figures with six decimals.
func inPercent(figure float64) float64 { return 100 * (math.Round(figure*1e6) / 1e6) }

// row formats a result like the reference tables.
func row(r accuracy.Result) string {
	withShare := func(n int, format string, figure float64) string {
		if n == 0 {
			return "0"
		}
		return fmt.Sprintf("%d ("+format+")", n, figure)
	}
	return fmt.Sprintf("%d/%ds | %d (%.2f%%) | %d | %d | %.4f | %.2f | %+.2f | %.2f | %.1f | %d | %d | %s | %s | %.0f%% | %d",
		r.Limit, r.PeriodS, r.ExactOver, 100*float64(r.ExactOver)/float64(r.Requests), r.WronglyAllowed, r.WronglyLimited, r.WrongPct,
		inPercent(r.MeanAbsRelErr), inPercent(r.MeanSignedRelErr), inPercent(r.MeanAbsRelErrPerSource), inPercent(r.MeanAbsRelErrWeighted),
		r.SourcesExactOver, r.SourcesDecisionEverDiffers,
		withShare(r.SourcesOverButNeverLimited, "%.0f%%", 100*r.MaxOvershootOfThose),
		withShare(r.SourcesLimitedButNeverOver, "%.2f", r.MinPeakOfThose),
		100*r.WorstWronglyAllowed, r.FixedWindowWronglyAllowed)
}

// The figures equal those that an independent program computed for the same traces.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(trace.Shared(t, "reference", "accuracy.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, section := range bytes.Split(page, []byte("\n#### "))[1:] {
		name, rest, _ := strings.Cut(string(section), ":")
		tables++
		t.Run(name, func(t *testing.T) {
			var want []string
			for line := range strings.Lines(rest) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
					break
				} else if cells := strings.Trim(line, "| "); strings.HasPrefix(line, "|") && cells[0] >= '0' && cells[0] <= '9' {
					want = append(want, strings.ReplaceAll(cells, ",", ""))
				}
			}
			arrivals := trace.Arrivals(t, name)
			o := accuracy.Options{Limits: limits, Estimators: []string{"weighted"}}
			if name == "bplogs" {
				o.Phases = 2
			}
			report := measure(t, arrivals, o)
			var got []string
			for _, r := range report.Results {
				got = append(got, row(r))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-reference +this:\n%s", diff)
			}
			head, _, _ := strings.Cut(rest, "\n")
			head = strings.ReplaceAll(head, ",", "")
			for _, fact := range []string{fmt.Sprintf(" %d events", report.Events), fmt.Sprintf(" %d clients", report.Clients), report.NormalizedSHA256[:16]} {
				if !strings.Contains(head, fact) {
					t.Errorf("%q is not in %q", fact, head)
				}
			}
			if name == "bplogs" {
				spread := measure(t, arrivals, accuracy.Options{Limits: limits, Estimators: append(o.Estimators, subWindows...), Spread: true})
				checkSensitivity(t, report, spread)
				checkSubWindows(t, spread)
			}
		})
	}
	if tables != 5 {
		t.Errorf("there are %d tables, want 5", tables)
	}
}

// rows returns the cells of the lines that begin with first in the table below a heading of the reference
// figures.
func rows(t *testing.T, heading, first string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile(trace.Shared(t, "reference", "accuracy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n### "+heading)
	rest, _, _ = strings.Cut(rest, "\n### ")
	for line := range strings.Lines(rest) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); strings.TrimSpace(cells[0]) == first {
			rows = append(rows, cells)
		}
	}
	if !found || len(rows) == 0 {
		t.Fatalf("there is no table %q", heading)
	}
	for _, row := range rows {
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
	}
	return rows
}

// limitNamed returns the limit of a row.
func limitNamed(t *testing.T, name string) accuracy.Limit {
	t.Helper()
	for _, l := range limits {
		if fmt.Sprintf("%d/%ds", l.Threshold, l.Period/1e6) == name {
			return l
		}
	}
	t.Fatalf("there is no limit %q", name)
	return accuracy.Limit{}
}

// of returns the result of an estimator for a limit.
func of(t *testing.T, r *accuracy.Report, l accuracy.Limit, estimator string) accuracy.Result {
	t.Helper()
	i := slices.IndexFunc(r.Results, func(r accuracy.Result) bool {
		return r.Limit == l.Threshold && int64(r.PeriodS)*1e6 == l.Period && r.Estimator == estimator
	})
	if i < 0 {
		t.Fatalf("no result of %s for %v", estimator, l)
	}
	return r.Results[i]
}

// checkSensitivity checks what changes if requests are spread over their second, or if windows begin half a period
// later.
func checkSensitivity(t *testing.T, inSeconds, spread *accuracy.Report) {
	t.Helper()
	short := func(r accuracy.Result) string {
		return fmt.Sprintf("%d+%d = %.4f%%, err %.2f (%+.2f)", r.WronglyAllowed, r.WronglyLimited, r.WrongPct,
			inPercent(r.MeanAbsRelErr), inPercent(r.MeanSignedRelErr))
	}
	for _, row := range rows(t, "Sensitivity", "bplogs") {
		l := limitNamed(t, row[1])
		plain, spread := of(t, inSeconds, l, "weighted"), of(t, spread, l, "weighted")
		if got, want := short(plain), row[2]; got != want {
			t.Errorf("%s: %s, want %s", row[1], got, want)
		}
		if got, want := short(spread), row[3]; got != want {
			t.Errorf("%s, spread: %s, want %s", row[1], got, want)
		}
		// The last column is the other phase: its share is one end of the range.
		var allowed, limited int
		var wrong float64
		if _, err := fmt.Sscanf(row[5], "%d+%d = %f%%", &allowed, &limited, &wrong); err != nil {
			t.Fatal(err)
		}
		want := [2]float64{min(plain.WrongPct, wrong), max(plain.WrongPct, wrong)}
		for i, got := range plain.Phases.WrongPct {
			if math.Abs(got-want[i]) > 0.00006 {
				t.Errorf("%s: over phases %v%% are wrong, want %v%%", row[1], plain.Phases.WrongPct, want)
				break
			}
		}
	}
}

var subWindows = []string{"sub_windows_1", "sub_windows_2", "sub_windows_3", "sub_windows_6", "sub_windows_10", "sub_windows_60"}

// checkSubWindows checks estimates from sub-windows, which have their own length. If the period is not a multiple of
// it, the reference begins them at other times.
func checkSubWindows(t *testing.T, spread *accuracy.Report) {
	t.Helper()
	for _, row := range rows(t, "More counters", "bplogs") {
		l := limitNamed(t, row[1])
		for i, name := range subWindows {
			r := of(t, spread, l, name)
			if l.Period%int64(r.Counters-1) != 0 {
				continue
			}
			if got := fmt.Sprintf("%.4f / %.2f", r.WrongPct, inPercent(r.MeanAbsRelErr)); got != row[2+i] {
				t.Errorf("%s, %s: %s, want %s", row[1], r.Estimator, got, row[2+i])
			}
		}
	}
}
