package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/analysis/reading"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
)

func newReplayAccuracy() *cobra.Command {
	var r replay
	var m accuracyMode
	cmd := &cobra.Command{
		Use:   "accuracy LOG…",
		Short: "Report how often estimates of the rate are wrong",
		Long: `Compare estimates of the rate with an exact sliding log, at every request. For each estimator,
report how many decisions would have been wrong, and how much memory a client takes. Every
request is counted: none is refused.

From the decision logs of all nodes of a PoP, report how often the nodes decided differently
from an exact limiter.

A long log can be counted in parts, on several machines: with --part, a run reads the whole log and
counts the requests of its part of the clients. 'edge replay accuracy merge' merges the output of
all parts into the report of a single run: see docs/accuracy.md.

` + prose.Paragraph("Estimators are "+strings.Join(accuracy.EstimatorNames(), ", ")+"; sub_windows_N may have any N.", 98, ""),
		Example: `  edge replay accuracy access.log
  edge replay accuracy --html accuracy.html access.log
  edge replay accuracy --limit 10/10s,50/1m,1000/1h --phases 10 access.log
  edge replay accuracy --json access.log | jq '.results[] | [.estimator, .wrong_pct]'
  edge replay accuracy --part 3/16 access.log > 3.json
  edge replay accuracy node-1.decisions node-2.decisions node-3.decisions`,
		RunE: func(cmd *cobra.Command, logs []string) error { return r.run(cmd, logs, &m) },
	}
	limits := setting.ListOf(&m.o.Limits, parseLimit)
	limits.Default = "50/1m"
	r.define(cmd, []setting.Setting{
		{Name: "limit", Value: limits, Help: "`threshold/period`, or several, separated by commas"},
		{Name: "estimators", Value: setting.List(&m.o.Estimators, nil).Choices(accuracy.EstimatorNames()...), Help: "`names` of the estimators to compare (default: all that suit the limits)"},
		{Name: "phases", Value: setting.Int(&m.o.Phases, 4, 1, math.MaxInt, "number"), Help: "number of window starts to try, spread evenly over the period; the first is aligned with the epoch"},
		{Name: "spread-seconds", Value: setting.Bool(&m.o.Spread, false), Help: "spread the requests of a client in a second evenly over that second"},
		{Name: "part", Value: setting.Parsed("n/parts", &m.o.Share, "", accuracy.ParseShare), Help: "count one of several parts of the clients, as in `3/16`, and write JSON for edge replay accuracy merge", Contradicts: "markdown|html"},
	}...)
	cmd.AddCommand(newReplayAccuracyMerge())
	return cmd
}

// accuracyMode compares estimators with the exact sliding log.
type accuracyMode struct{ o accuracy.Options }

func (m *accuracyMode) prepare() (accesslog.Fields, error) {
	_, err := accuracy.New(m.o)
	return 0, asUsage(err)
}

func (m *accuracyMode) decided(log *decisions.Log) (*decisions.Report, error) { return log.Accuracy() }

// parseLimit parses a limit such as 50/1m.
func parseLimit(text string) (l accuracy.Limit, err error) {
	threshold, period, ok := strings.Cut(text, "/")
	if !ok {
		return l, errors.New("a limit is a threshold, a slash and a period, such as 50/1m")
	}
	if l.Threshold, err = parseThreshold(threshold); err != nil {
		return l, fmt.Errorf("the threshold %w", err)
	}
	p, err := parsePeriod(period)
	l.Period = p.Microseconds()
	return l, err
}

var parseThreshold = setting.Whole[uint64](1, rule.MaxThreshold)

func parseDuration(text string) (time.Duration, error) {
	return prose.ParseDuration(text, time.Second)
}

func parsePeriod(text string) (time.Duration, error) {
	p, err := parseDuration(text)
	if err == nil && (p < rule.MinPeriod || p > rule.MaxPeriod) {
		err = fmt.Errorf("the period %s is not between %s and %s", text, rule.FormatDuration(rule.MinPeriod), rule.FormatDuration(rule.MaxPeriod))
	}
	return p, err
}

func (m *accuracyMode) answer(ctx context.Context, in *input, to *reporter) error {
	var a *accuracy.Accuracy
	var traffic analysis.TimelineCollector
	m.o.Workers = in.flags.workers
	isPart := m.o.Share != accuracy.Share{}
	fine := false // the times of the first requests are finer than seconds
	err := in.arrivals(ctx, func(batch []accesslog.Arrival) (err error) {
		if a == nil {
			fine = slices.ContainsFunc(batch, func(a accesslog.Arrival) bool { return a.Time%1e6 != 0 })
			if fine && !m.o.Spread {
				m.o.Resolution = time.Microsecond
			}
			if a, err = accuracy.New(m.o); err != nil {
				return err
			}
		}
		if isPart || to.page != nil {
			for i := range batch {
				traffic.Add(batch[i].Time, false)
			}
		}
		return a.Add(batch)
	})
	if a == nil {
		return err
	}
	found := a.Part() // ends its goroutines
	if err != nil {
		return err
	}
	found.Traffic = traffic.Timeline()
	if fine && m.o.Spread {
		report(in.stderr, complaint.WithHint(errors.New("--spread-seconds has moved requests whose times have fractions of a second"), "leave it out"))
	}
	if isPart {
		to.asJSON = true
		return to.write(in, chart.Document{Data: found})
	}
	whole, err := accuracy.Merge([]*accuracy.Part{found})
	if err != nil {
		return err
	}
	return to.write(in, whole.Document(found.Traffic))
}

func newReplayAccuracyMerge() *cobra.Command {
	var out reporter
	cmd := &cobra.Command{
		Use:   "merge PART…",
		Short: "Merge the parts of a log into one report",
		Long: `Merge the output of all parts of 'edge replay accuracy --part' into the report of a single run.
All parts must come from the same log and be made with the same flags and version.`,
		Example: `  edge replay accuracy merge part-*.json
  edge replay accuracy merge --html accuracy.html part-*.json`,
		RunE: func(cmd *cobra.Command, files []string) error { return mergeParts(cmd, files, &out) },
	}
	define(cmd.Flags(), out.settings())
	return cmd
}

// A partFile is the output of edge replay accuracy --part.
type partFile struct {
	Version string          `json:"version"`
	Log     accesslog.Stats `json:"log"`
	accuracy.Part
}

func mergeParts(cmd *cobra.Command, files []string, out *reporter) error {
	if len(files) == 0 {
		return usageError{errors.New("no part given"), firstExample(cmd)}
	}
	var read []partFile
	var parts []*accuracy.Part
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var p partFile
		if err := json.Unmarshal(text, &p); err != nil || p.Share == (accuracy.Share{}) {
			return complaint.WithHint(fmt.Errorf("%s is not a part of a report", name), "write each part with 'edge replay accuracy --part', as in --part 3/16")
		}
		if p.Version != version.String() {
			return complaint.WithHint(fmt.Errorf("%s is from version %s, and this is %s", name, p.Version, version.String()), "make all parts, and merge them, with the same version")
		}
		read, parts = append(read, p), append(parts, &p.Part)
	}
	whole, err := accuracy.Merge(parts)
	if err != nil {
		return err
	}
	if err := out.open(cmd.OutOrStdout()); err != nil {
		return err
	}
	return out.emit(reading.Names(read[0].Log), read[0].Log, whole.Document(parts[0].Traffic))
}
