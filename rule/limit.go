package rule

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
)

// A Limit is exceeded when the estimated number of requests in any Period is
// greater than Threshold.
type Limit struct {
	Threshold uint64
	Period    time.Duration // whole seconds

	// SubWindows is the number of equal parts of a window that are counted separately. The more
	// there are, the smaller the error of the estimate. 0 means 1. Threshold and Period limit it, and so
	// does the number of nodes: a PoP with more than counter.Layout.MaxNodes refuses the rule.
	SubWindows int

	// Estimate says how the previous window counts, and whether the estimate is rounded down.
	Estimate counter.Kind
}

// Counted returns how l is counted.
func (l Limit) Counted() counter.Limit {
	layout, ok := counter.LayoutOf(max(1, l.SubWindows))
	if !ok {
		panic("rule: a limit has an unsupported number of sub-windows")
	}
	return counter.Limit{Threshold: l.Threshold, Period: l.Period.Microseconds(), Layout: layout, Kind: l.Estimate}
}

// String returns the limit in the form 50 in 1m.
func (l Limit) String() string {
	return fmt.Sprintf("%d in %s", l.Threshold, FormatDuration(l.Period))
}

// Resolution returns the time over which l assumes requests to be spread evenly: a window or a sub-window,
// rounded to the millisecond.
func (l Limit) Resolution() time.Duration {
	return (l.Period / time.Duration(max(1, l.SubWindows))).Round(time.Millisecond)
}

// Bound returns the maximum total cost of the requests of one key that pass in any trailing period, and the
// calculation. Each request costs cost. late is the total cost of the requests that pass between the one that
// crosses the threshold and the moment when every node of the PoP acts on it:
//
//	2·(threshold + late) + cost      weighted
//	2·(threshold + late + 1) + cost  weighted, rounded down
//	2·(threshold + late + cost)      fixed
//	threshold + late + cost          whole_oldest
//
// By itself, the weighted estimate lets through at most twice the threshold, with any number of
// sub-windows: all of it at the end of a sub-window, and all of it again as that sub-window's weight falls. A fixed
// window lets one more request through: the one that crosses the threshold in the first of two windows.
// If the oldest sub-window counts in full, the estimate is never less than the actual count.
func (l Limit) Bound(late, cost uint64) (most uint64, arithmetic string) {
	switch l.Estimate {
	case counter.Fixed:
		return 2 * (l.Threshold + late + cost), fmt.Sprintf("2·(%d + %d + %d)", l.Threshold, late, cost)
	case counter.WholeOldest:
		return l.Threshold + late + cost, fmt.Sprintf("%d + %d + %d", l.Threshold, late, cost)
	case counter.WeightedRounded:
		return 2*(l.Threshold+late+1) + cost, fmt.Sprintf("2·(%d + %d + 1) + %d", l.Threshold, late, cost)
	}
	return 2*(l.Threshold+late) + cost, fmt.Sprintf("2·(%d + %d) + %d", l.Threshold, late, cost)
}

// FormatDuration formats d as spelled in rules files, without fractions of a second: 10s, 1h30m, 7d. d must
// not be negative.
func FormatDuration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends d to dst in the format of FormatDuration.
func AppendDuration(dst []byte, d time.Duration) []byte {
	return prose.AppendDuration(dst, d.Truncate(time.Second))
}
