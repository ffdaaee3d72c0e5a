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

	"github.com/edgelimit/edge/load"
)

// A loadOutput configures where and how the report of a run is written.
type loadOutput struct {
	asJSON  bool
	latency bool   // print the distribution
	csv     string // file for a line per request, if not empty
	html    string // file for a page, if not empty
	stdout  io.Writer
	page    *os.File // nil if none is wanted
}

func (o loadOutput) to(stdout io.Writer) loadOutput {
	o.stdout = stdout
	return o
}

// runLoad sends the requests and writes the report.
func runLoad(ctx context.Context, o load.Options, oracle *oracleFlags, out loadOutput, show progressLine) error {
	if err := out.open(oracle.log); err != nil {
		return err
	}
	o.Progress = show.update
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
	report, err := oracle.report(log)
	if err != nil {
		return err
	}
	// Write to standard output last: its reader may stop, which ends the process.
	return errors.Join(writeFile("log", oracle.log, log.Write), writeFile("CSV", out.csv, log.WriteCSV), out.write(report), unanswered(report, o.Timeout, o.HTTP2), oracle.judge(report))
}

// unanswered returns an error if nothing was answered.
func unanswered(r *load.Report, timeout time.Duration, http2 bool) error {
	if len(r.Statuses) > 0 {
		return nil
	}
	to := joined(r.Targets)
	switch {
	case r.Failures["malformed"] > 0:
		return hintedError{fmt.Errorf("%s does not answer in HTTP", to), "write https:// if it speaks TLS"}
	case r.Failures["closed"] > 0 && http2:
		return hintedError{fmt.Errorf("%s does not speak HTTP/2", to), "leave out --http2, or write https:// if it speaks HTTP/2 over TLS"}
	case r.Failures["closed"] > 0:
		return hintedError{fmt.Errorf("%s closes connections without an answer", to), "write https:// if it speaks TLS; --identity proxy2 if it expects the PROXY protocol"}
	case r.Failures["timeout"] > 0:
		return hintedError{fmt.Errorf("%s did not answer any request within %v", to, timeout), "--timeout allows more time; --identity proxy2 if it expects the PROXY protocol"}
	}
	return fmt.Errorf("%s did not answer any request", to)
}

// leaveCores leaves half of the cores to targets on this machine if requests are sent as fast as
// connections carry them; otherwise the generator and the target compete for cores. restore undoes
// this. GOMAXPROCS in the environment takes precedence.
func leaveCores(o load.Options) (restore func()) {
	here := slices.ContainsFunc(o.Targets, func(t load.Target) bool { return t.Addr.Addr().IsLoopback() })
	if !o.ClosedLoop || !here || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS((all + 1) / 2)
	return func() { runtime.GOMAXPROCS(all) }
}

// open opens the page and checks that the other files can be written, before anything is sent.
func (o *loadOutput) open(log string) (err error) {
	for _, other := range []struct{ what, file string }{{"the page", o.html}, {"the CSV", o.csv}} {
		if log != "" && log == other.file {
			return usageError{fmt.Errorf("%s cannot be the log and %s", log, other.what), ""}
		}
	}
	if o.csv != "" && o.csv == o.html {
		return usageError{fmt.Errorf("%s cannot be the CSV and the page", o.csv), ""}
	}
	if o.page, err = openPage(o.html); err != nil {
		return err
	}
	for _, name := range []string{log, o.csv} {
		if name == "" {
			continue
		}
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file, unless name is empty.
func writeFile(what, name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing the %s: %w", what, err)
	}
	return errors.Join(write(file), file.Close())
}

func (o loadOutput) write(r *load.Report) error {
	var err error
	report := r.Document()
	report.Run = newRun("")
	if o.page != nil {
		err = writePage(o.page, report)
	}
	if o.asJSON {
		return errors.Join(err, writeJSON(o.stdout, report))
	}
	if err := errors.Join(err, report.WriteText(o.stdout)); err != nil || !o.latency {
		return err
	}
	return r.WriteLatency(o.stdout)
}

// joined joins names, and abbreviates long lists.
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
