// Package figure holds what the reports of analyses have in common: times and periods in words,
// traffic over time, and the peaks of clients.
package figure

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/pop/rule"
)

// Clock writes a moment of a log.
func Clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }

// Between says what time a log covers.
func Between(from, to time.Time) string {
	if from.Equal(to) {
		return " at " + Clock(from) + " (UTC)"
	}
	return fmt.Sprintf(" from %s to %s (UTC)", Clock(from), Clock(to))
}

// Lasting returns a number of seconds as people write it, to the millisecond.
func Lasting(s float64) string {
	return page.Span(time.Duration(s * float64(time.Second)).Round(time.Millisecond))
}

// Brief returns a round time as rules files write it: 10m, 1h, 7d.
func Brief(d time.Duration) string { return rule.FormatDuration(d) }

// Period is brief for seconds.
func Period(s int64) string { return Brief(time.Duration(s) * time.Second) }

// Percent returns n in percent of all, 0 of nothing.
func Percent(n, all uint64) float64 { return 100 * float64(n) / float64(max(1, all)) }

// TimeOf returns a time of a log, in microseconds since the Unix epoch.
func TimeOf(t int64) time.Time { return time.UnixMicro(t).UTC() }
