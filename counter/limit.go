package counter

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// A Kind specifies how an estimate counts the previous window.
type Kind uint8

const (
	// Weighted counts the sub-window in which the period begins in proportion to the part in the period, and later ones
	// whole.
	Weighted Kind = iota

	// Fixed ignores the previous window.
	Fixed

	// WholeOldest is like Weighted, but counts every sub-window whole, so that the estimate is never less
	// than the number of requests in the period.
	WholeOldest

	// WeightedRounded is like Weighted, rounded down: a limit is exceeded when the whole part of the estimate is greater
	// than the threshold. So a client that sends requests evenly, at less than the limit, never exceeds it.
	WeightedRounded
)

var kindNames = [...]string{Weighted: "weighted", Fixed: "fixed", WholeOldest: "whole_oldest",
	WeightedRounded: "weighted_rounded"}

// KindNames returns the names of the kinds, in order. Those that rules files can set as estimate come first.
func KindNames() []string { return kindNames[:] }

// String returns the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// Known reports whether k is a valid kind.
func (k Kind) Known() bool { return int(k) < len(kindNames) }

// A Limit is a threshold, and how requests are counted for it.
type Limit struct {
	Threshold uint64 // requests per period that are still allowed
	Period    int64  // microseconds, a whole number of seconds
	Layout    Layout
	Kind      Kind
}

// Delta returns what n requests at elapsed add to a window's value. 0 ≤ elapsed <
// Period, in microseconds. n must fit the field.
func (l Limit) Delta(n uint64, elapsed int64) uint64 {
	return n << (uint(l.Layout.Bits) * uint(l.subWindow(elapsed)))
}

// Count returns cur, the value of the current window, with n more requests at elapsed. Full fields do not change, as on
// nodes. 0 ≤ elapsed < Period, in microseconds.
func (l Limit) Count(cur, n uint64, elapsed int64) uint64 {
	delta := l.Delta(min(n, l.Layout.Stop()), elapsed)
	if l.Layout != Plain {
		delta &^= l.Layout.Below(l.Layout.Each(l.Layout.Stop()-1), cur)
	}
	return l.Layout.Add(cur, delta)
}

// subWindow returns the index of the sub-window that holds elapsed.
func (l Limit) subWindow(elapsed int64) int {
	if l.Layout.Fields == 1 {
		return 0
	}
	return int(elapsed * int64(l.Layout.Fields) / l.Period)
}

// Over reports whether the estimated number of requests in the period that ends elapsed
// into the current window exceeds the threshold, given prev and cur, the values of the
// previous and the current window. With one field:
//
//	prev·(Period−elapsed) + cur·Period > Threshold·Period
//
// It is exact in 128-bit integers. 0 ≤ elapsed < Period, in microseconds.
func (l Limit) Over(prev, cur uint64, elapsed int64) bool {
	return l.Estimate(prev, cur, elapsed).Over(l.Threshold)
}

// Remaining returns how many more requests may come at elapsed before the limit is
// exceeded.
func (l Limit) Remaining(prev, cur uint64, elapsed int64) uint64 {
	return l.Threshold - min(l.Threshold, l.Estimate(prev, cur, elapsed).Ceil())
}

// Back returns when the estimate is back at the threshold if no more requests come, in
// microseconds from the start of the current window: elapsed if it is not exceeded. It may
// lie in the next window, where the current one is the previous.
//
// With one field there are two cases. If cur ≤ Threshold, the previous window still
// contributes, and its weight must fall:
//
//	prev·(Period−back) ≤ (Threshold−cur)·Period
//
// Else the current window alone exceeds it, and its weight must fall in the next:
//
//	cur·(2·Period−back) ≤ Threshold·Period
//
// If the estimate is rounded down, it must fall below Threshold + 1 instead, so Period − 1 is added to both right
// sides. With more fields each case is a sequence of such pieces, one for each sub-window.
func (l Limit) Back(prev, cur uint64, elapsed int64) int64 {
	if back, ok := l.backWithin(prev, cur, elapsed); ok {
		return back
	}
	if back, ok := l.backWithin(cur, 0, 0); ok {
		return l.Period + back
	}
	return 2 * l.Period // cur has left the period
}

// backWithin is Back for the rest of the current window. ok is false if the estimate stays above the threshold until
// its end.
func (l Limit) backWithin(prev, cur uint64, elapsed int64) (back int64, ok bool) {
	n := int64(l.Layout.Fields)
	for j := l.subWindow(elapsed); j < int(n); j++ {
		// Within the jth sub-window the estimate is whole + part·left/Period, left
		// falling from Period to 0 while time runs to the sub-window's end.
		whole, part := l.split(prev, cur, j)
		if whole > l.Threshold {
			continue
		}
		end := int64(j+1) * l.Period
		left := end - n*elapsed
		if part > 0 {
			room := times(l.Threshold-whole, l.Period)
			if l.Kind == WeightedRounded {
				room = room.plus(uint64(l.Period - 1))
			}
			if most, fits := room.div(part); fits && most < uint64(left) {
				left = int64(most)
			}
		}
		// n·back ≥ end−left, rounded up to a microsecond, and not before the
		// sub-window begins.
		return max(elapsed, (end-left+n-1)/n, (int64(j)*l.Period+n-1)/n), true
	}
	return 0, false
}

// split returns the counts of an estimate in the jth sub-window: part is that of the previous window's
// sub-window in which the period begins, whole the sum of all later sub-windows.
func (l Limit) split(prev, cur uint64, j int) (whole, part uint64) {
	if l.Kind == Fixed {
		return l.Layout.Sum(cur), 0
	}
	prev >>= int(l.Layout.Bits) * j
	if l.Kind == WholeOldest {
		return l.Layout.sum(cur, prev), 0
	}
	part = prev & l.Layout.mask()
	return l.Layout.sum(cur, prev>>l.Layout.Bits), part
}

// Estimate returns the estimated number of requests in the period that ends elapsed into
// the current window.
func (l Limit) Estimate(prev, cur uint64, elapsed int64) Estimate {
	j := l.subWindow(elapsed)
	whole, part := l.split(prev, cur, j)
	e := Estimate{whole, part, int64(j+1)*l.Period - int64(l.Layout.Fields)*elapsed, l.Period}
	if l.Kind == WeightedRounded {
		e = e.rounded()
	}
	return e
}

// Falls returns when the estimate falls next, at the latest, if no more requests come, in
// microseconds from the start of the current window: when the period's start enters or leaves
// the oldest sub-window that counts. If nothing counts, it is the end of the window.
func (l Limit) Falls(prev, cur uint64, elapsed int64) int64 {
	if l.Kind == Fixed {
		return l.Period
	}
	n, first := int(l.Layout.Fields), l.subWindow(elapsed)
	for k := first; k < n; k++ {
		count := l.Layout.field(prev, k)
		if k == first { // its rest, rounded down, may be 0
			e := l.Estimate(count<<(int(l.Layout.Bits)*k), 0, elapsed)
			count = e.Whole + e.Part
		}
		if count > 0 {
			return l.leaves(k, k == first)
		}
	}
	for k := range n {
		if l.Layout.field(cur, k) > 0 {
			return l.Period + l.leaves(k, false)
		}
	}
	return l.Period
}

// leaves returns when the kth sub-window of the previous window begins to count less: when the period's start enters
// it, or leaves it if the start is already in it or sub-windows count whole.
func (l Limit) leaves(k int, began bool) int64 {
	if began || l.Kind == WholeOldest {
		k++
	}
	n := int64(l.Layout.Fields)
	return (int64(k)*l.Period + n - 1) / n
}

// Explain describes a decision: 49.5 in 1m (42 in the minute before, 18 in this one); the limit is 49. The estimate is
// rounded, but not so far that the comparison would look wrong.
func (l Limit) Explain(prev, cur uint64, elapsed int64) string {
	e := l.Estimate(prev, cur, elapsed)
	period := prose.Duration(time.Duration(l.Period) * time.Microsecond)
	length, this := period, "this window"
	if name, ok := periodNames[l.Period]; ok {
		length, this = name, "this one"
	}
	if l.Kind == Fixed {
		return fmt.Sprintf("%d in the current %s; the limit is %d", e.Whole, length, l.Threshold)
	}
	over, shown := e.Over(l.Threshold), ""
	for decimals := 2; decimals <= 12; decimals++ {
		shown = strconv.FormatFloat(e.Float(), 'f', decimals, 64)
		shown = strings.TrimSuffix(strings.TrimRight(shown, "0"), ".")
		if v, _ := strconv.ParseFloat(shown, 64); v > float64(l.Threshold) == over {
			break
		}
	}
	return fmt.Sprintf("%s in %s (%d in the %s before, %d in %s); the limit is %d", shown, period, l.Layout.Sum(prev),
		length, l.Layout.Sum(cur), this, l.Threshold)
}

// periodNames are the periods that have a name.
var periodNames = map[int64]string{1e6: "second", 60e6: "minute", 3600e6: "hour", 86400e6: "day", 7 * 86400e6: "week"}

// An Estimate is the estimated number of requests in a period:
//
//	Whole + Part·Left/Of
//
// Whole requests are certainly in the period. Part requests lie in the sub-window in which the
// period begins; the share Left/Of of them is assumed to be in it.
// 0 ≤ Left ≤ Of, both in microseconds; Of is positive.
type Estimate struct {
	Whole, Part uint64
	Left, Of    int64
}

// Ceil returns e rounded up, saturated. A threshold is a whole number, so e is greater than it if and only if Ceil is.
func (e Estimate) Ceil() uint64 {
	if e.Part == 0 {
		return e.Whole
	}
	share, _ := times(e.Part, e.Left).plus(uint64(e.Of - 1)).div(uint64(e.Of)) // at most Part, which fits
	return e.Whole + min(share, ^e.Whole)
}

// Over reports whether e is greater than threshold.
func (e Estimate) Over(threshold uint64) bool {
	mayBe := e.Whole > threshold || e.Part > threshold-e.Whole // usually false, which saves the division
	return mayBe && e.Ceil() > threshold
}

// rounded returns e rounded down.
func (e Estimate) rounded() Estimate {
	share, _ := times(e.Part, e.Left).div(uint64(e.Of)) // at most Part, which fits
	return Estimate{e.Whole + min(share, ^e.Whole), 0, e.Left, e.Of}
}

// Float returns e rounded, for display only.
func (e Estimate) Float() float64 {
	if e.Part == 0 {
		return float64(e.Whole)
	}
	return float64(e.Whole) + float64(e.Part)*float64(e.Left)/float64(e.Of)
}

// A wide is an unsigned integer of 128 bits. Counts are below 2^64 and periods below 2^40 µs, so no product overflows.
type wide struct{ hi, lo uint64 }

func times(a uint64, b int64) wide {
	hi, lo := bits.Mul64(a, uint64(b))
	return wide{hi, lo}
}

func (a wide) plus(n uint64) wide {
	lo, carry := bits.Add64(a.lo, n, 0)
	return wide{a.hi + carry, lo}
}

// div returns ⌊a/d⌋, and whether it fits in 64 bits.
func (a wide) div(d uint64) (q uint64, fits bool) {
	if a.hi >= d {
		return 0, false
	}
	q, _ = bits.Div64(a.hi, a.lo, d)
	return q, true
}

// Window returns the index of the window of length period that holds now, from the Unix epoch,
// and how much of it has elapsed. period and elapsed are in microseconds; 0 ≤ elapsed < period.
// Times before the epoch have negative indexes.
func Window(now time.Time, period int64) (index, elapsed int64) {
	return WindowAt(now.UnixMicro(), period)
}

// WindowAt is Window for t microseconds after the Unix epoch.
func WindowAt(t, period int64) (index, elapsed int64) {
	index, elapsed = t/period, t%period
	if elapsed < 0 {
		index, elapsed = index-1, elapsed+period
	}
	return index, elapsed
}

// TTL returns the time to live of a window's counter in seconds, from its first request: this
// window and the next one, and 5 s for late flushes, clocks that differ, and memcached's clock,
// whose first second may end immediately. period is in microseconds and a whole number of seconds.
func TTL(period int64) int32 { return int32(2*period/1e6) + 5 }

// Windows holds the state of a limit's current window and of the previous one. The zero value is
// at index 0.
type Windows[I int64 | uint32, T any] struct {
	Index     I // of the current window, from the Unix epoch
	Prev, Cur T
}

// Roll makes the window at index the current one. It does nothing if that window has passed.
func (w *Windows[I, T]) Roll(index I) {
	switch {
	case index == w.Index+1:
		*w = Windows[I, T]{Index: index, Prev: w.Cur}
	case index > w.Index:
		*w = Windows[I, T]{Index: index}
	}
}

// At returns the state of the window at index, or nil if it is not one of the two.
func (w *Windows[I, T]) At(index I) *T {
	switch index {
	case w.Index:
		return &w.Cur
	case w.Index - 1:
		return &w.Prev
	}
	return nil
}
