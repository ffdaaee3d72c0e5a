package main

import (
	"context"
	"io"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
)

// replayAccuracy compares estimators over the requests of in.
func (f *replayFlags) replayAccuracy(ctx context.Context, o analysis.AccuracyOptions, in *input, stdout io.Writer) error {
	var a *analysis.Accuracy
	again := func() error {
		if a != nil {
			a.Report() // ends its goroutines
			a = nil
		}
		return nil
	}
	defer again()
	err := in.arrivals(ctx, again, func(batch []accesslog.Arrival) (err error) {
		if a == nil {
			if !f.spread && finer(batch) {
				o.Resolution = time.Microsecond
			}
			if a, err = analysis.NewAccuracy(o); err != nil {
				return err
			}
		}
		return a.Add(batch)
	})
	if err != nil {
		return err
	}
	report := a.Report()
	a = nil
	if f.asJSON {
		return writeJSON(stdout, report)
	}
	in.summarise(stdout)
	return report.WriteText(stdout)
}

// finer reports whether the times of a log are finer than seconds, by its first requests.
func finer(batch []accesslog.Arrival) bool {
	for _, a := range batch {
		if a.Time%1e6 != 0 {
			return true
		}
	}
	return false
}
