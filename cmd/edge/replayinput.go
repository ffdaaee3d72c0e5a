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

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/reading"
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

	explained bool // what is suspicious about the logs was reported
}

// settings returns the flags for reading logs. Commands for which reading logs is optional list the flags that ask for
// it in needs.
func (f *inputFlags) settings(needs ...string) []setting.Setting {
	formats := prose.Texts(accesslog.Formats(), func(f accesslog.Format) string { return f.Name })
	rows := []setting.Setting{
		{Group: "reading logs", Name: "format", Value: setting.Text(&f.format, "", nil).Choices(formats...), Help: "`name` of the logs' format, or json:FIELD=NAME,… (default: detected)"},
		{Name: "pattern", Value: setting.Text(&f.pattern, "", nil), Help: "format of the logs, as nginx's `log_format` or Apache's LogFormat", Contradicts: "format"},
		{Name: "fields", Value: setting.Text(&f.fields, "", nil), Help: "`names` of the columns of a W3C log, such as IIS's, that has no #Fields", Contradicts: "pattern"},
		{Name: "time-zone", Value: setting.Parsed("name", &f.zone, "UTC", parseZone), Help: "time zone of times that do not name one, such as Europe/Berlin"},
		{Name: "sort", Value: oneOf(&f.sort, "auto", "memory", "disk"), Help: "memory: lines may be up to a million entries late; disk: sort on disk; auto: sort on disk only if necessary"},
		{Name: "temp-dir", Value: setting.Text(&f.tempDir, "", nil), Help: "`directory` to sort in (default: the system's)"},
		{Name: "workers", Value: setting.Parsed("number", &f.workers, "0", setting.Whole(0, 1<<10)), Help: "`number` of goroutines that read and count (default: one per core)"},
	}
	for i := range rows {
		rows[i].Needs = needs
	}
	return rows
}

// progressSetting returns the setting of whether progress is shown.
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
func (f *inputFlags) read(cmd *cobra.Command, files []string, need accesslog.Fields, pass func(*input) error) error {
	in, err := f.open(cmd, files, need)
	if err != nil {
		return err
	}
	err = pass(in)
	_ = in.log.Close()
	if f.sort != "auto" || !in.log.Disordered {
		return err
	}
	f.sort = "disk"
	return f.read(cmd, files, need, pass)
}

// open opens files and determines their formats.
func (f *inputFlags) open(cmd *cobra.Command, files []string, need accesslog.Fields) (*input, error) {
	format, err := f.described()
	if err != nil {
		return nil, err
	}
	in := &input{files: files, stderr: cmd.ErrOrStderr(), flags: f}
	in.log.Report = func(err error, lines string) {
		report(in.stderr, err)
		_ = writePrintable(in.stderr, lines) // errors are ignored, as in report
	}
	in.log.Log, err = accesslog.Open(files, cmd.InOrStdin(), accesslog.Options{
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
	if err := reading.CheckFormat(format); err != nil {
		return "", fail(name, prose.Hint(err), "%s", err)
	}
	return format, nil
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
	files  []string
	log    reading.Log
	stderr io.Writer
	flags  *inputFlags
}

// arrivals passes all requests to f, in order of time.
func (in *input) arrivals(ctx context.Context, f func([]accesslog.Arrival) error) error {
	defer newProgressLine(in.flags.progress, in.stderr).reading(in.log.Progress)()
	return in.explain(in.log.Arrivals(ctx, f))
}

// entries is like arrivals, for whole entries.
func (in *input) entries(ctx context.Context, f func(*accesslog.Entry) error) error {
	defer newProgressLine(in.flags.progress, in.stderr).reading(in.log.Progress)()
	return in.explain(in.log.Entries(ctx, f))
}

// explain explains the result of reading the logs. It reports what is suspicious about them once, however often they
// are read.
func (in *input) explain(err error) error {
	if err == nil && in.flags.explained {
		return nil
	}
	in.flags.explained = err == nil
	return in.log.Explain(err)
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
