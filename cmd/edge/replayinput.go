package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for --time-zone in an image that contains only the binary

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop/setting"
)

// inputFlags configures how logs are read.
type inputFlags struct {
	format   string
	pattern  string
	fields   string
	zone     *time.Location
	sort     string
	tempDir  string
	workers  int
	progress bool
	buffer   int // number of entries held back to sort them; 0: accesslog's default
}

// settings returns the settings of how logs are read. Commands that also do something else have them only together with
// the flags needs.
func (f *inputFlags) settings(needs ...string) []setting.Setting {
	rows := []setting.Setting{
		{Group: "reading logs", Name: "format", Value: setting.Text(&f.format, "", nil), Help: "`name` of the logs' format, or json:FIELD=NAME,… (default: detected)"},
		{Name: "pattern", Value: setting.Text(&f.pattern, "", nil), Help: "format of the logs, as nginx's `log_format` or Apache's LogFormat", Contradicts: "format"},
		{Name: "fields", Value: setting.Text(&f.fields, "", nil), Help: "`names` of the columns of a W3C log, such as IIS's, that has no #Fields", Contradicts: "pattern"},
		{Name: "time-zone", Value: setting.Parsed("name", &f.zone, "UTC", parseZone), Help: "time zone of times that do not name one, such as Europe/Berlin"},
		{Name: "sort", Value: setting.Text(&f.sort, "auto", oneOf("auto", "memory", "disk")), Help: "memory: lines may be up to a million entries late; disk: sort on disk; auto: sort on disk only if necessary"},
		{Name: "temp-dir", Value: setting.Text(&f.tempDir, "", nil), Help: "`directory` to sort in (default: the system's)"},
		{Name: "workers", Value: setting.Parsed("number", &f.workers, "0", setting.Whole(0, 1<<10)), Help: "`number` of goroutines that read and count (default: one per core)"},
	}
	for i := range rows {
		rows[i].Needs = needs
	}
	return rows
}

// progressSetting is the setting of whether progress is shown.
func progressSetting(show *bool) setting.Setting {
	return setting.Setting{Name: "progress", Value: setting.Bool(show, true),
		Help: "show progress, if standard error is a terminal"}
}

func parseZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		err = errors.New("must be a name such as Europe/Berlin")
	}
	return zone, err
}

// read opens files and calls pass with them. If entries come too late to be sorted in memory, it
// starts again and sorts on disk.
func (f *inputFlags) read(files []string, need accesslog.Fields, stdin io.Reader, stderr io.Writer, pass func(*input) error) error {
	in, err := f.open(files, need, stdin, stderr)
	if err != nil {
		return err
	}
	err = pass(in)
	_ = in.log.Close()
	if f.sort != "auto" || !in.disordered {
		return err
	}
	f.sort = "disk"
	return f.read(files, need, stdin, stderr, pass)
}

// open opens files and determines their formats.
func (f *inputFlags) open(files []string, need accesslog.Fields, stdin io.Reader, stderr io.Writer) (*input, error) {
	format, err := f.described()
	if err != nil {
		return nil, err
	}
	in := &input{files: files, stderr: stderr, progress: f.progress}
	in.log, err = accesslog.OpenWith(files, stdin, accesslog.Options{
		Format: format, Location: f.zone, Need: need, Workers: f.workers, Disk: f.sort == "disk", TempDir: f.tempDir, Buffer: f.buffer,
	})
	return in, err
}

// described returns the format that the flags name or describe, or "".
func (f *inputFlags) described() (string, error) {
	name, format := "format", f.format
	switch {
	case f.pattern != "":
		name, format = "pattern", f.pattern
	case f.fields != "":
		name, format = "fields", cmp.Or(f.format, "w3c")+":fields="+strings.ReplaceAll(f.fields, ",", " ")
	}
	err := accesslog.CheckFormat(format)
	if err == nil {
		return format, nil
	}
	hint := "see 'edge replay --help' for how formats are described"
	if unknown := new(accesslog.FormatError); errors.As(err, &unknown) {
		hint = cmp.Or(prose.Meant(unknown.Name, unknown.Known), unknown.Hint())
	}
	return "", fail(name, hint, "%s", prose.Message(err))
}

// onlyOnce returns an error if a log is given twice: its requests would count twice.
func onlyOnce(files []string) error {
	for i, name := range files {
		if slices.Contains(files[:i], name) {
			return usageError{fmt.Errorf("%s is given twice", name), "give each log once: its requests would count twice"}
		}
	}
	return nil
}

// isPipe reports whether a log can be read only once.
func isPipe(name string) bool {
	info, err := os.Stat(name)
	return name == "-" || err == nil && !info.Mode().IsRegular()
}

// An input holds the logs to read.
type input struct {
	files      []string
	log        *accesslog.Log
	stderr     io.Writer
	progress   bool
	anonymize  bool
	disordered bool // an entry came too late, and the logs can be read again
}

// arrivals passes all requests to f, in order of time.
func (in *input) arrivals(ctx context.Context, f func([]accesslog.Arrival) error) error {
	defer newProgressLine(in.progress, in.stderr).reading(in.log.Progress)()
	return in.explain(in.log.Arrivals(ctx, f))
}

// entries is like arrivals, for whole entries.
func (in *input) entries(ctx context.Context, f func(*accesslog.Entry) error) error {
	defer newProgressLine(in.progress, in.stderr).reading(in.log.Progress)()
	return in.explain(in.log.Entries(ctx, f))
}

// stats returns statistics of what was read, without the text of malformed lines if output is anonymized.
func (in *input) stats() accesslog.Stats {
	s := in.log.Stats()
	if in.anonymize {
		s.Samples = slices.Clone(s.Samples)
		for i := range s.Samples {
			s.Samples[i].Text = ""
		}
	}
	return s
}

// explain adds a hint to an error of reading, and reports malformed lines.
func (in *input) explain(err error) error {
	var disorder *accesslog.OrderError
	switch {
	case err == nil:
	case errors.As(err, &disorder):
		in.disordered = disorder.Again
		return hintedError{err, "--sort disk sorts everything first"} // instead of what the package would say
	default:
		return err
	}
	stats := in.stats()
	if stats.Entries == 0 {
		return hintedError{errors.New("the log has no requests"), "see 'edge replay --help' for the formats, and name one with --format"}
	}
	all := stats.Entries + stats.Malformed
	read := fmt.Sprintf("read %d of %s (%.3g%%)", stats.Entries, chart.Count(all, "line"), 100*float64(stats.Entries)/float64(all))
	if stats.Malformed > 0 {
		report(in.stderr, fmt.Errorf("%s; the others, of which the first follow, look like %s", read, in.log.Rest()))
		for _, s := range stats.Samples {
			text := ""
			if !in.anonymize {
				text = fmt.Sprintf(": %q", s.Text)
			}
			_ = writePrintable(in.stderr, fmt.Sprintf("    %s:%d: %s%s\n", s.File, s.Line, s.Reason, text)) // as report
		}
	}
	if stats.Malformed > stats.Entries {
		return hintedError{errors.New(read + " as requests, less than half: the result would say little"),
			"separate the kinds of lines, for example with grep, or describe the format of most of them: see --pattern in 'edge replay --help'"}
	}
	in.warn(stats)
	return nil
}

// warn reports what is suspicious about what was read.
func (in *input) warn(stats accesslog.Stats) {
	for _, f := range stats.Files {
		if f.BrokenOff {
			report(in.stderr, fmt.Errorf("%s (%s) breaks off: it was read up to there", f.Name, f.Compression))
		}
	}
	if i := slices.IndexFunc(stats.Files, func(f accesslog.FileStats) bool { return f.Proxied }); i >= 0 {
		f := stats.Files[i]
		hint := `describe the lines, as in: --pattern '$proxy - $remote_user [$time_local] "$request" $status $bytes "$http_referer" "$http_user_agent" "$http_x_forwarded_for"'`
		if named := f.Format + ":client=FIELD"; accesslog.CheckFormat(named) == nil {
			hint = "name the field with the clients, as in: --format " + named
		}
		report(in.stderr, hintedError{fmt.Errorf("the clients in %s seem to be proxies: a field looks like X-Forwarded-For, which has the real clients", f.Name), hint})
	}
	if stats.Unnamed > 0 {
		report(in.stderr, fmt.Errorf("%s without a client in the log: all count as one client", chart.Count(stats.Unnamed, "request")))
	}
}

// names returns the names of the files, with their formats.
func (in *input) names() string {
	var files []string
	for _, f := range in.log.Stats().Files {
		files = append(files, fmt.Sprintf("%s (%s)", f.Name, f.Format))
	}
	return joined(files)
}

// formats lists the formats of logs, for the help.
func formats() string {
	var b strings.Builder
	_ = columns(&b, func(w io.Writer) {
		for _, f := range accesslog.Formats() {
			fmt.Fprintf(w, "  %s\t%s\n", f.Name, f.About)
		}
	})
	return b.String()
}
