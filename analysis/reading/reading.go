// Package reading reads logs for the commands that analyze them, and reports suspicious properties of the logs.
package reading

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
)

// CheckFormat is accesslog.CheckFormat with a hint.
func CheckFormat(format string) error {
	err := accesslog.CheckFormat(format)
	if err == nil {
		return nil
	}
	hint := "see 'edge replay --help' for how formats are described"
	if unknown := new(accesslog.FormatError); errors.As(err, &unknown) {
		hint = cmp.Or(prose.Meant(unknown.Name, unknown.Known), unknown.Hint())
	}
	return complaint.WithHint(errors.New(prose.Message(err)), hint)
}

// A Log is one or more logs that are read as one.
type Log struct {
	*accesslog.Log
	Anonymize  bool // hides the text of malformed lines
	Disordered bool // an entry came too late, and the logs can be read again

	// Report receives a suspicious property of the logs, and the lines that show it, if any.
	Report func(err error, lines string)
}

// Stats returns statistics of the logs, without the text of malformed lines if Anonymize is set.
func (l *Log) Stats() accesslog.Stats {
	s := l.Log.Stats()
	if l.Anonymize {
		s.Samples = slices.Clone(s.Samples)
		for i := range s.Samples {
			s.Samples[i].Text = ""
		}
	}
	return s
}

// Names returns the names of the files that were read, with their formats.
func Names(read accesslog.Stats) string {
	return prose.FirstThree(prose.Texts(read.Files,
		func(f accesslog.FileStats) string { return fmt.Sprintf("%s (%s)", f.Name, f.Format) }))
}

// Explain adds a hint to err, which reading the logs has returned. It reports malformed lines, and returns an error if
// most lines are.
func (l *Log) Explain(err error) error {
	var disorder *accesslog.OrderError
	switch {
	case err == nil:
	case errors.As(err, &disorder):
		l.Disordered = disorder.Again
		return complaint.WithHint(err, "--sort disk sorts everything first")
	default:
		return err
	}
	stats := l.Stats()
	all := stats.Entries + stats.Malformed
	read := fmt.Sprintf("read %d of %s (%.3g%%)", stats.Entries, chart.Count(all, "line"),
		100*float64(stats.Entries)/float64(all))
	if stats.Malformed > 0 {
		lines := ""
		for _, s := range stats.Samples {
			lines += fmt.Sprintf("    %s:%d: %s%s\n", s.File, s.Line, s.Reason, chart.When(!l.Anonymize, ": %q", s.Text))
		}
		l.Report(fmt.Errorf("%s; the others, of which the first follow, look like %s", read, l.Rest()), lines)
	}
	if stats.Entries == 0 {
		return complaint.WithHint(errors.New("the log has no requests"),
			"see 'edge replay --help' for the formats, and name one with --format")
	}
	if stats.Malformed > stats.Entries {
		return complaint.WithHint(errors.New(read+" as requests, less than half: the result would say little"),
			"separate the kinds of lines, for example with grep, or describe the format of most of them: see --pattern in "+
				"'edge replay --help'")
	}
	l.warn(stats)
	return nil
}

// warn reports suspicious properties of the logs, which may make the result wrong.
func (l *Log) warn(stats accesslog.Stats) {
	for _, f := range stats.Files {
		if f.BrokenOff {
			l.Report(fmt.Errorf("%s (%s) breaks off: it was read up to there", f.Name, f.Compression), "")
		}
	}
	if i := slices.IndexFunc(stats.Files, func(f accesslog.FileStats) bool { return f.Proxied }); i >= 0 {
		f := stats.Files[i]
		hint := `describe the lines, as in: --pattern '$proxy - $remote_user [$time_local] "$request" $status $bytes ` +
			`"$http_referer" "$http_user_agent" "$http_x_forwarded_for"'`
		if named := f.Format + ":client=FIELD"; accesslog.CheckFormat(named) == nil {
			hint = "name the field with the clients, as in: --format " + named
		}
		l.Report(complaint.WithHint(fmt.Errorf("the clients in %s seem to be proxies: a field looks like X-Forwarded-For, "+
			"which has the real clients", f.Name), hint), "")
	}
	if i := slices.IndexFunc(stats.Files, func(f accesslog.FileStats) bool { return f.Dates.DayMayBeFirst() }); i >= 0 {
		hint := `if they are, write the year first: sed -E 's#([0-9]{2})/([0-9]{2})/([0-9]{4})#\3-\2-\1#'`
		l.Report(complaint.WithHint(fmt.Errorf("the dates in %s are read as month/day/year, but could be day/month/year",
			stats.Files[i].Name), hint), "")
	}
	if stats.Unnamed > 0 {
		l.Report(fmt.Errorf("%s without a client in the log: all count as one client",
			chart.Count(stats.Unnamed, "request")), "")
	}
}
