package judge

import "slices"

// A kind is a way to compute an estimate from the times of requests.
type kind int

const (
	weighted    kind = iota // the oldest sub-window in proportion to its part in the period
	wholeOldest             // the whole oldest sub-window
	fixed                   // ignores the previous window
	slidingLog              // no estimate: the requests in the period
	rounded                 // like weighted, rounded down

	// Known mistakes.
	reversed   // the oldest sub-window in proportion to its part outside the period
	neverFalls // the whole previous window
	leaky      // a bucket that leaks steadily, or one of tokens, with room for the threshold
)

// kinds holds the estimates that a rule may use, by name.
var kinds = map[string]kind{"weighted": weighted, "whole_oldest": wholeOldest, "fixed": fixed, "weighted_rounded": rounded}

// A counter counts requests, weighted by the cost of their rule. It keeps the time of every request. An estimate uses
// the sub-windows of one period and the oldest one that it overlaps. Times are in microseconds since the Unix epoch.
type counter struct {
	period, n int64 // n sub-windows in a period
	kind      kind
	cost      int64 // of a request
	threshold int64
	from, to  []int64 // the earliest and the latest times of requests, each sorted

	level, at int64 // content of a leaky bucket at a time, as a count times the period; the threshold leaks in a period
}

// add counts a request in each sub-window between from and to.
func (c *counter) add(from, to int64) {
	if c.kind == leaky {
		c.level, c.at = c.left(to)+c.cost*c.period, max(c.at, to)
		return
	}
	c.from = slices.Insert(c.from, before(c.from, from), from)
	c.to = slices.Insert(c.to, before(c.to, to), to)
}

// before returns how many of the sorted times are before t.
func before(times []int64, t int64) int {
	n := len(times)
	if n > 0 && times[n-1] >= t { // it rarely is
		n, _ = slices.BinarySearch(times, t)
	}
	return n
}

// index returns the index of the sub-window at t.
func (c *counter) index(t int64) int64 { return floor(t*c.n, c.period) }

func (c *counter) begin(index int64) int64 { return -floor(-index*c.period, c.n) }

func floor(a, b int64) int64 {
	if a < 0 && a%b != 0 {
		return a/b - 1
	}
	return a / b
}

// between returns the number of requests from the first of two times to the second.
func (c *counter) between(first, end int64) int64 {
	return int64(before(c.from, end) - before(c.to, first))
}

// left returns the content of a leaky bucket at t.
func (c *counter) left(t int64) int64 { return max(0, c.level-max(0, t-c.at)*c.threshold) }

// estimate returns the parts of the estimate at t, which is whole + part·left/period.
func (c *counter) estimate(t int64) (whole, part, left int64) {
	switch c.kind {
	case slidingLog:
		return int64(len(c.to) - before(c.to, t-c.period+1)), 0, 0
	case leaky:
		return 1, c.left(t) / c.cost, 1 // including the next request, which does not enter a full bucket
	}
	i := c.index(t)
	end, left := c.begin(i+1), (i+1)*c.period-c.n*t
	switch c.kind {
	case fixed:
		return c.between(c.begin(floor(i, c.n)*c.n), end), 0, 0
	case neverFalls:
		return c.between(c.begin(floor(i, c.n)*c.n-c.n), end), 0, 0
	case wholeOldest:
		return c.between(c.begin(i-c.n), end), 0, 0
	}
	// Sub-windows that begin a multiple of the period apart are equally long.
	first, oldest := end-c.period, c.begin(i-c.n)
	whole, part = c.between(first, end), c.between(oldest, first)
	if c.kind == reversed {
		left = c.period - left
	}
	return whole, part, left
}

// over reports whether the estimate at t exceeds the threshold.
func (c *counter) over(t int64) bool {
	if c.kind != leaky && int64(len(c.from))*c.cost <= c.threshold {
		return false
	}
	whole, part, left := c.estimate(t)
	return part*left > c.room(whole)
}

// room returns the greatest part·left for which cost·(whole + part·left/period) does not exceed the threshold, or, if rounded,
// is less than threshold + 1; it is negative if whole alone exceeds it. Products stay below 2^63 with ten million requests
// and a period of seven days.
func (c *counter) room(whole int64) int64 {
	threshold, less := c.threshold, int64(0)
	if c.kind == rounded {
		threshold, less = threshold+1, 1
	}
	return (threshold/c.cost-whole)*c.period + floor(threshold%c.cost*c.period-less, c.cost)
}

// back returns the first time, not before t, at which over returns false if no more requests arrive.
func (c *counter) back(t int64) int64 {
	switch {
	case !c.over(t):
		return t
	case c.kind == slidingLog:
		return c.to[len(c.to)-1-int(c.threshold/c.cost)] + c.period
	case c.kind == leaky:
		return max(t, c.at) - floor(c.room(1)*c.cost-c.left(t), max(1, c.threshold))
	}
	// Within a sub-window the estimate is monotonic.
	for i := c.index(t); ; i++ {
		begin, end := max(t, c.begin(i)), c.begin(i+1)
		if !c.over(begin) {
			return begin
		}
		if !c.over(end - 1) {
			// The weight of part falls by n each microsecond.
			whole, part, left := c.estimate(begin)
			return begin - floor(c.room(whole)-part*left, part*c.n)
		}
	}
}

// count returns the estimate at t, rounded down.
func (c *counter) count(t int64) int64 {
	whole, part, left := c.estimate(t)
	return whole*c.cost + part*left/c.period*c.cost + part*left%c.period*c.cost/c.period
}
