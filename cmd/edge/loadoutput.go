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
	outputFlags
	latency bool   // print the distribution
	csv     string // file for a line per request, if not empty
}

// runLoad sends the requests and writes the report.
func runLoad(ctx context.Context, o load.Options, oracle *oracleFlags, out loadOutput, stdout io.Writer, show progressLine) error {
	to, err := out.create(oracle.log, stdout)
	if err != nil {
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
	return errors.Join(writeFile("log", oracle.log, log.Write), writeFile("CSV", out.csv, log.WriteCSV), out.write(*to, report), unanswered(report, o.Timeout, o.HTTP2), oracle.judge(report))
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

// create opens the page and checks that the other files can be written, before anything is sent.
func (o *loadOutput) create(log string, stdout io.Writer) (*destination, error) {
	names := map[string]string{}
	for _, f := range []struct{ what, file string }{{"log", log}, {"CSV", o.csv}, {"page", o.html}} {
		if before := names[f.file]; f.file != "" && before != "" {
			return nil, usageError{fmt.Errorf("%s cannot be the %s and the %s", f.file, before, f.what), ""}
		}
		names[f.file] = f.what
	}
	to, err := o.open(stdout)
	for _, name := range []string{log, o.csv} {
		if name == "" || err != nil {
			continue
		}
		var file *os.File
		if file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			err = file.Close()
		}
	}
	return to, err
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

func (o *loadOutput) write(to destination, r *load.Report) error {
	if err := to.emit("", nil, r.Document()); err != nil || !o.latency || o.asJSON {
		return err
	}
	return r.WriteLatency(to.stdout)
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
