package accesslog_test

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// text opens a log with this text as standard input.
func text(text string, o accesslog.Options) (*accesslog.Log, error) {
	return accesslog.Open([]string{"-"}, strings.NewReader(text), o)
}

// result reads a log and returns everything in it, or the error and its hint.
func result(t *testing.T, log string, o accesslog.Options) string {
	t.Helper()
	l, err := text(log, o)
	if err != nil {
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			return fmt.Sprintf("%v\nhint: %s\n", err, hinted.Hint())
		}
		return err.Error() + "\n"
	}
	got := strings.TrimPrefix(strings.ReplaceAll(dump(t, l), "\n\n", "\n"), "\n")
	if f := l.Stats().Files[0]; f.Proxied {
		got += "behind a proxy\n"
	}
	return got
}

// The files in testdata/logs contain logs and the results of reading them. The commands are
//
//	read [zone=NAME]     a log
//	quoted               a log as a Go string
//	described            a format as the first line, and a log
//	formats              descriptions of formats
//	times [zone=NAME]    a time in each line, after its name
//
// go test -run TestLogs -rewrite rewrites the results: read the diff before committing it.
func TestLogs(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "logs"), func(t *testing.T, file string) {
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			zone := "UTC"
			if d.HasArg("zone") {
				d.ScanArgs(t, "zone", &zone)
			}
			location, err := time.LoadLocation(zone)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			var got strings.Builder
			switch d.Cmd {
			case "read":
				return result(t, d.Input, accesslog.Options{Location: location})
			case "quoted":
				log, err := strconv.Unquote(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return result(t, log, accesslog.Options{})
			case "described":
				format, log, _ := strings.Cut(d.Input, "\n")
				return result(t, log, accesslog.Options{Format: format})
			case "formats":
				for format := range strings.SplitSeq(d.Input, "\n") {
					fmt.Fprintln(&got, cmp.Or(accesslog.CheckFormat(format), errors.New("valid")))
				}
			case "times":
				for line := range strings.Lines(d.Input) {
					name, at, _ := strings.Cut(line, ":")
					fmt.Fprintf(&got, "%s: %s\n", name, timeOf(t, strings.TrimSpace(at), location))
				}
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return got.String()
		})
	})
}

// timeOf returns a time in UTC, or why it is invalid.
func timeOf(t *testing.T, at string, location *time.Location) (got string) {
	t.Helper()
	const valid = "c|2026-01-02T00:00:00Z" // so that the file is not refused
	l, err := text(valid+"\nc|"+at, accesslog.Options{Format: "$client|$time", Location: location})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
		if at := time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano); "c|"+at != valid {
			got += at
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Stats().Samples {
		got += s.Reason
	}
	return got
}
