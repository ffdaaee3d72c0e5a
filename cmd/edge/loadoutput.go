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

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/load"
)

// A loadOutput is where the report of a run goes, and how it is written.
type loadOutput struct {
	asJSON bool
	html   string // a file for a page; empty for none
	stdout io.Writer
	page   *os.File // nil if none is wanted
}

func (o loadOutput) to(stdout io.Writer) loadOutput {
	o.stdout = stdout
	return o
}

// runLoad sends, and writes the report.
func runLoad(ctx context.Context, o load.Options, oracle *oracleFlags, out loadOutput, show progressLine) error {
	if err := out.open(oracle.log); err != nil {
		return err
	}
	o.Progress = show.update
	back := leaveCores(o)
	log, err := load.Run(ctx, o)
	back()
	show.end()
	if err != nil {
		return err
	}
	if log.Requests() == 0 {
		return fmt.Errorf("nothing was sent: no request was due in %v", log.Elapsed.Round(time.Millisecond))
	}
	report, err := oracle.report(log)
	if err != nil {
		return err
	}
	var none error
	if len(report.Statuses) == 0 {
		none = errors.New("no request was answered: nothing is known of the target")
	}
	// Standard output comes last: whoever reads it may stop, which ends the process.
	return errors.Join(oracle.keep(log), out.write(report), none, oracle.judge(report))
}

// leaveCores leaves half of the cores to targets on this machine where requests are sent as fast
// as connections carry them: else the generator and the target wait for each other's. It returns
// what takes them back. A GOMAXPROCS in the environment stands.
func leaveCores(o load.Options) (back func()) {
	here := slices.ContainsFunc(o.Targets, func(t load.Target) bool { return t.Addr.Addr().IsLoopback() })
	if !o.ClosedLoop || !here || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS((all + 1) / 2)
	return func() { runtime.GOMAXPROCS(all) }
}

// open opens the page, and finds out that the log can be written, before anything is sent.
func (o *loadOutput) open(log string) (err error) {
	if log != "" && log == o.html {
		return usageError{fmt.Errorf("%s cannot be the log and the page", log), ""}
	}
	if o.page, err = openPage(o.html); err != nil || log == "" {
		return err
	}
	file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func (o loadOutput) write(r *load.Report) error {
	var err error
	if o.page != nil {
		title := fmt.Sprintf("%s in %.1f s to %s", page.Count(r.Sending.Requests, "request"), r.DurationS, joined(r.Targets))
		err = writePage(o.page, page.Page{Title: "Load", Subtitle: title, Sections: r.Sections()})
	}
	if o.asJSON {
		return errors.Join(err, writeJSON(o.stdout, r))
	}
	return errors.Join(err, r.WriteText(o.stdout))
}

// joined writes names, of many only the first.
func joined(names []string) (s string) {
	for i, name := range names {
		switch {
		case i == 3:
			return s + fmt.Sprintf(" and %d more", len(names)-3)
		case i > 0:
			s += ", "
		}
		s += name
	}
	return s
}
