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
