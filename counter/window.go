package counter

import "time"

// Window returns the number of the window of length period that holds now, counted from
// the Unix epoch, and how much of it has elapsed. period and elapsed are in
// microseconds; 0 ≤ elapsed < period. Times before the epoch have negative numbers.
func Window(now time.Time, period int64) (number, elapsed int64) {
	t := now.UnixMicro()
	number, elapsed = t/period, t%period
	if elapsed < 0 {
		number, elapsed = number-1, elapsed+period
	}
	return number, elapsed
}

// TTL returns for how many seconds the counter of a window is kept, from its first
// request on: for this window and the next one, in which it is the previous, and 5 s
// for flushes that are late, clocks that differ, and memcached's clock, whose second may
// be over at once. period is in microseconds and a whole number of seconds.
func TTL(period int64) int32 {
	return int32(2*period/1e6) + 5
}
