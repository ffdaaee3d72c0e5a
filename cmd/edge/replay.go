package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/rule"
)

// replayFlags are the flags of edge replay.
type replayFlags struct {
	set *pflag.FlagSet

	// What is asked; one of them.
	accuracy bool
	generate string

	input  inputFlags
	asJSON bool

	limits     []string
	estimators []string
	phases     int
	spread     bool

	generation generateFlags
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --accuracy|--generate [flags] FILE…",
		Short: "Say from access logs what a limit would have done, and how accurate it is",
		Long: `Read access logs, oldest file first, "-" for the standard input, and say what a limit
would have done to the requests in them.

--accuracy compares estimates of the rate with the exact sliding log, at every request,
and counts each of them: nobody is refused. It tells how many decisions would have been
wrong, for each estimator, and what a client costs in memory.

--generate writes a log of its own making instead: the same every time.`,
		Example: `  edge replay --accuracy access.log
  edge replay --accuracy --limit 10/10s,50/1m,1000/1h --phases 10 access.log
  edge replay --accuracy --json access.log | jq '.results[] | [.estimator, .wrong_pct]'
  edge replay --generate web | edge replay --accuracy -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			f.set = cmd.Flags()
			if f.generate != "" {
				return f.generation.write(f.generate, files, cmd.OutOrStdout())
			}
			o, err := f.accuracyOptions()
			if err := errors.Join(f.check(files), err); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			in, err := f.input.open(files, 0, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer in.close()
			return f.replayAccuracy(ctx, o, in, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.accuracy, "accuracy", false, "compare estimates with the exact sliding log")
	flags.StringVar(&f.generate, "generate", "", "write a log: `mix` is a file, or one of "+strings.Join(mix.Names(), ", "))
	flags.StringSliceVar(&f.limits, "limit", []string{"50/1m"}, "`threshold/period`, several with commas")
	flags.StringSliceVar(&f.estimators, "estimators", nil, "`names` of those to compare (default all): "+strings.Join(analysis.EstimatorNames(), ", "))
	flags.IntVar(&f.phases, "phases", 4, "beginnings of windows to try, evenly over the period; the first is the epoch's")
	flags.BoolVar(&f.spread, "spread-seconds", false, "place the requests of a client in a second evenly within it")
	f.input.register(flags)
	flags.BoolVar(&f.asJSON, "json", false, "write JSON")
	f.generation.register(flags)
	return cmd
}

// check refuses what contradicts itself, before anything is read.
func (f *replayFlags) check(files []string) error {
	switch {
	case !f.accuracy:
		return usageError{errors.New("what is to be said of the log?"), "edge replay --accuracy access.log"}
	case len(files) == 0:
		return usageError{errors.New("no log is given"), "edge replay --accuracy access.log; - is the standard input"}
	}
	return nil
}

// accuracyOptions returns what is asked of an Accuracy.
func (f *replayFlags) accuracyOptions() (o analysis.AccuracyOptions, err error) {
	o = analysis.AccuracyOptions{Estimators: f.estimators, Phases: f.phases, Spread: f.spread, Workers: f.input.workers}
	for _, text := range f.limits {
		l, err := parseLimit(text)
		if err != nil {
			return o, fail(f.set, "limit", "--limit 50/1m: 50 requests in a minute", "%q: %v", text, err)
		}
		o.Limits = append(o.Limits, l)
	}
	if _, err := analysis.NewAccuracy(o); err != nil {
		return o, usageError{err, "see 'edge replay --help'"}
	}
	return o, nil
}

// parseLimit reads a limit such as 50/1m.
func parseLimit(text string) (analysis.Limit, error) {
	threshold, period, ok := strings.Cut(text, "/")
	if !ok {
		return analysis.Limit{}, errors.New("a limit is a threshold, a slash and a period")
	}
	n, err := strconv.ParseUint(threshold, 10, 64)
	if err != nil || n < 1 || n > rule.MaxThreshold {
		return analysis.Limit{}, fmt.Errorf("the threshold %q is no number from 1 to 2^53", threshold)
	}
	p, err := rule.ParseDuration(period)
	if err != nil {
		return analysis.Limit{}, err
	}
	if p < rule.MinPeriod || p > rule.MaxPeriod {
		return analysis.Limit{}, fmt.Errorf("the period %s is not between %s and %s", period, rule.FormatDuration(rule.MinPeriod), rule.FormatDuration(rule.MaxPeriod))
	}
	return analysis.Limit{Threshold: n, Period: p.Microseconds()}, nil
}

// writeJSON writes v for programs.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// at writes a time in microseconds since the epoch.
func at(t int64) string { return time.UnixMicro(t).UTC().Format(time.RFC3339) }
