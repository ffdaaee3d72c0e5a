package counter

import "time"

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
func TTL(period int64) int32 {
	return int32(2*period/1e6) + 5
}

// Windows holds the state of a limit's current window and of the previous one. The zero value is
// at index 0.
type Windows[I int64 | uint32, T any] struct {
	Index     I // of the current window, from the Unix epoch
	Prev, Cur T
}

// Roll makes the window at index the current one, and reports whether that is a change. It does
// nothing if that window has passed.
func (w *Windows[I, T]) Roll(index I) (rolled bool) {
	var none T
	switch {
	case index <= w.Index:
		return false
	case index == w.Index+1:
		w.Prev = w.Cur
	default:
		w.Prev = none
	}
	w.Index, w.Cur = index, none
	return true
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
