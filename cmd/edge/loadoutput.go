package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load"
)

// A loadOutput configures where and how the report of a run is written.
type loadOutput struct {
	reporter
	latency bool   // print the distribution
	csv     string // file for a line per request, if not empty
}

// runLoad sends the requests and writes the report.
func runLoad(ctx context.Context, o load.Options, judge *judgeFlags, out loadOutput, stdout io.Writer, show progressLine) error {
	// Errors show before anything is sent.
	names := slices.DeleteFunc([]string{judge.log, out.csv, out.html}, func(name string) bool { return name == "" })
	slices.Sort(names)
	if len(slices.Compact(names)) < len(names) {
		return usageError{errors.New("two of --log, --csv and --html name the same file"), ""}
	}
	sent, err := createFile(judge.log)
	csv, csvErr := createFile(out.csv)
	if err := errors.Join(err, csvErr, out.open(stdout)); err != nil {
		return err
	}
	o.Progress = show.ofLoad()
	restore := leaveCores(o)
	log, err := load.Run(ctx, o)
	restore()
	show.end()
	if err != nil {
		return err
	}
	if log.Requests() == 0 {
		return fmt.Errorf("nothing was sent: no request was due in %v", log.Elapsed.Round(time.Millisecond))
	}
	report := log.Report()
	if judge.o.Rules != nil {
		if report.Score, err = log.Score(judge.o); err != nil {
			return err
		}
	}
	// Write to standard output last: its reader may stop, which ends the process.
	return errors.Join(writeFile(sent, log.Write), writeFile(csv, log.WriteCSV), out.writeReport(report), unanswered(report), judge.verdict(report))
}

// unanswered returns an error if nothing was answered.
func unanswered(r *load.Report) error {
	if len(r.Statuses) > 0 {
		return nil
	}
	return complaint.WithHint(fmt.Errorf("%s did not answer any request", prose.FirstThree(r.Targets)), "write https:// if it speaks TLS; --identity proxy2 if it expects the PROXY protocol")
}

// leaveCores leaves half of the cores to targets on this machine if requests are sent as fast as
// connections carry them; otherwise the generator and the target compete for cores. restore undoes
// this. GOMAXPROCS in the environment takes precedence.
func leaveCores(o load.Options) (restore func()) {
	here := slices.ContainsFunc(o.Targets, func(t load.Target) bool { return t.Addr.Addr().IsLoopback() || t.Addr.Addr().IsUnspecified() })
	if !o.ClosedLoop || !here || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS((all + 1) / 2)
	return func() { runtime.GOMAXPROCS(all) }
}

func (o *loadOutput) writeReport(r *load.Report) error {
	if err := o.emit("", nil, r.Document()); err != nil || !o.latency || o.asJSON || o.markdown {
		return err
	}
	return r.WriteLatency(o.stdout)
}
