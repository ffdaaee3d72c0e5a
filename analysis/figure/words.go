// Package figure has the common parts of analysis reports: formatting of times and periods,
// traffic over time, and the peaks of clients.
package figure

import (
	"fmt"
	"iter"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/rule"
)

// Clock formats a time of a log.
func Clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }

// Between describes the time that a log covers.
func Between(from, to time.Time) string {
	if from.Equal(to) {
		return " at " + Clock(from) + " (UTC)"
	}
	return fmt.Sprintf(" from %s to %s (UTC)", Clock(from), Clock(to))
}

// Lead summarizes the log that a report covers.
func Lead[N int | int64 | uint64](requests N, clients int, from, to time.Time) string {
	return chart.Count(requests, "request") + " of " + chart.Count(clients, "client") + Between(from, to)
}

// Lasting formats a duration in seconds, to the millisecond.
func Lasting(s float64) string {
	return chart.Span(time.Duration(s * float64(time.Second)).Round(time.Millisecond))
}

// Period formats a duration in seconds as in rules files: 10m, 1h, 7d.
func Period(s int64) string { return rule.FormatDuration(time.Duration(s) * time.Second) }

// Percent returns n as a percentage of all, or 0 if both are 0.
func Percent(n, all uint64) float64 { return 100 * float64(n) / float64(max(1, all)) }

// TimeOf converts a time of a log, in microseconds since the Unix epoch.
func TimeOf(t int64) time.Time { return time.UnixMicro(t).UTC() }

// Runs splits list into runs: each element of a run is the same as the first one.
func Runs[T any](list []T, same func(a, b *T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for from, i := 0, 1; i <= len(list); i++ {
			if i < len(list) && same(&list[from], &list[i]) {
				continue
			}
			if !yield(list[from:i]) {
				return
			}
			from = i
		}
	}
}
