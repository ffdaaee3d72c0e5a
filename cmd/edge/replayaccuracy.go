package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/pop/rule"
)

// accuracyMode compares estimators with the exact sliding log.
type accuracyMode struct {
	flags      *pflag.FlagSet
	selected   bool
	limits     []string
	estimators []string
	o          accuracy.Options
	in         *inputFlags
}

func newAccuracy(in *inputFlags) replayMode {
	m := &accuracyMode{flags: pflag.NewFlagSet("", pflag.ContinueOnError), in: in}
	m.flags.BoolVar(&m.selected, "accuracy", false, "compare estimates with the exact sliding log")
	m.flags.StringSliceVar(&m.limits, "limit", []string{"50/1m"}, "`threshold/period`, or several, separated by commas")
	m.flags.StringSliceVar(&m.estimators, "estimators", nil, "`names` of the estimators to compare (default: all that suit the limits)")
	m.flags.IntVar(&m.o.Phases, "phases", 4, "number of window starts to try, spread evenly over the period; the first is the epoch's")
	m.flags.BoolVar(&m.o.Spread, "spread-seconds", false, "spread the requests of a client in a second evenly over that second")
	return replayMode{name: "accuracy", flags: m.flags, selected: func() bool { return m.selected }, needs: func() accesslog.Fields { return 0 }, check: m.check, run: m.run}
}

// check parses the limits and returns the errors that an Accuracy would return.
func (m *accuracyMode) check() error {
	m.o.Estimators, m.o.Workers, m.o.Limits = m.estimators, m.in.workers, nil
	for _, text := range m.limits {
		l, err := parseLimit(text)
		if err != nil {
			return fail("limit", "--limit 50/1m: 50 requests in a minute", "%q: %v", text, err)
		}
		m.o.Limits = append(m.o.Limits, l)
	}
	if m.o.Phases == 0 {
		return fail("phases", "", "must be at least 1")
	}
	if _, err := accuracy.New(m.o); err != nil {
		return usageError{err, "see 'edge replay --help'"}
	}
	return nil
}

// parseLimit parses a limit such as 50/1m.
func parseLimit(text string) (accuracy.Limit, error) {
	threshold, period, ok := strings.Cut(text, "/")
	if !ok {
		return accuracy.Limit{}, errors.New("a limit is a threshold, a slash and a period")
	}
	n, err := strconv.ParseUint(threshold, 10, 64)
	if err != nil || n < 1 || n > rule.MaxThreshold {
		return accuracy.Limit{}, fmt.Errorf("the threshold %q is not a number from 1 to 2^53", threshold)
	}
	p, err := rule.ParseDuration(period)
	if err != nil {
		return accuracy.Limit{}, err
	}
	if p < rule.MinPeriod || p > rule.MaxPeriod {
		return accuracy.Limit{}, fmt.Errorf("the period %s is not between %s and %s", period, rule.FormatDuration(rule.MinPeriod), rule.FormatDuration(rule.MaxPeriod))
	}
	return accuracy.Limit{Threshold: n, Period: p.Microseconds()}, nil
}

func (m *accuracyMode) run(ctx context.Context, in *input, to destination) error {
	var a *accuracy.Accuracy
	var traffic analysis.TimelineCollector
	moved := false // the moved requests had finer times
	err := in.arrivals(ctx, func(batch []accesslog.Arrival) (err error) {
		if a == nil {
			if fine := finer(batch); m.o.Spread {
				moved = fine
			} else if fine {
				m.o.Resolution = time.Microsecond
			}
			if a, err = accuracy.New(m.o); err != nil {
				return err
			}
		}
		if to.page != nil {
			for i := range batch {
				traffic.Add(batch[i].Time, false)
			}
		}
		return a.Add(batch)
	})
	if a == nil {
		return err
	}
	found := a.Report() // ends its goroutines
	if err != nil {
		return err
	}
	if moved {
		report(in.stderr, hintedError{errors.New("--spread-seconds has moved requests whose times have fractions of a second"), "leave it out"})
	}
	return to.write(in, found.Document(traffic.Timeline()))
}

// finer reports whether the times of a log's first requests are finer than seconds.
func finer(batch []accesslog.Arrival) bool {
	for _, a := range batch {
		if a.Time%1e6 != 0 {
			return true
		}
	}
	return false
}
