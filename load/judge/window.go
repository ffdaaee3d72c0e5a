package judge

import "sort"

// A kind is a way to compute an estimate from counts.
type kind int

const (
	weighted    kind = iota // the oldest sub-window in proportion to its part in the period
	wholeOldest             // the whole oldest sub-window
	fixed                   // ignores the previous window
	slidingLog              // no estimate: keeps the time of every request

	// Known mistakes.
	reversed   // the oldest sub-window in proportion to its part outside the period
	outOfDate  // the window before the previous one instead of it
	neverFalls // the whole previous window
)

// kinds holds the estimates that a rule may use, by name.
var kinds = map[string]kind{"weighted": weighted, "whole_oldest": wholeOldest, "fixed": fixed}

// A counter counts requests, weighted by the cost of their rule. Times are in microseconds since the Unix epoch.
type counter interface {
	// add counts a request that arrived between from and to, with its greatest contribution
	// to later estimates if most is set, else with its least.
	add(from, to int64, most bool)

	// over reports whether the count in the period that ends at t exceeds threshold.
	over(t, threshold int64) bool

	// back returns the first time, not before t, at which over returns false if no more
	// requests arrive.
	back(t, threshold int64) int64

	// count returns the count in the period that ends at t, rounded down.
	count(t int64) int64
}

// windows counts requests by sub-window of a period. Estimates use the sub-windows of one period
// and the oldest one that it overlaps.
type windows struct {
	period, n int64 // n sub-windows in a period
	shift     int64 // delay of windows from the epoch
	kind      kind
	cost      int64   // of a request
	first     int64   // index of the first kept sub-window
	counts    []int64 // requests in the sub-windows from first on
}

// index returns the index of the sub-window at t.
func (w *windows) index(t int64) int64 { return floor((t-w.shift)*w.n, w.period) }

// begin returns when a sub-window begins.
func (w *windows) begin(index int64) int64 { return -floor(-index*w.period, w.n) + w.shift }

func floor(a, b int64) int64 {
	if a < 0 && a%b != 0 {
		return a/b - 1
	}
	return a / b
}

func (w *windows) add(from, to int64, most bool) {
	first, last := w.index(from), w.index(to)
	if !most {
		if w.kind == outOfDate && first < last {
			return // it may count in neither sub-window
		}
		last = first
	}
	if old := first - 3*w.n - w.first; old > int64(len(w.counts)) {
		w.first, w.counts = first, w.counts[:0]
	} else if old > 64 {
		w.first, w.counts = w.first+old, w.counts[old:]
	}
	for i := max(first, w.first); i <= last; i++ {
		for i-w.first >= int64(len(w.counts)) {
			w.counts = append(w.counts, 0)
		}
		w.counts[i-w.first]++
	}
}

// sum returns the count of the sub-windows from through to.
func (w *windows) sum(from, to int64) (n int64) {
	for i := max(from, w.first); i <= to && i-w.first < int64(len(w.counts)); i++ {
		n += w.counts[i-w.first]
	}
	return n
}

// estimate returns the parts of the estimate at t, which is whole + part·left/period.
func (w *windows) estimate(t int64) (whole, part, left int64) {
	i := w.index(t)
	left = (i+1)*w.period - w.n*(t-w.shift)
	switch w.kind {
	case fixed:
		return w.sum(floor(i, w.n)*w.n, i), 0, 0
	case wholeOldest:
		return w.sum(i-w.n, i), 0, 0
	case reversed:
		return w.sum(i-w.n+1, i), w.sum(i-w.n, i-w.n), w.period - left
	case outOfDate:
		return w.sum(i-w.n+1, i), w.sum(i-2*w.n, i-2*w.n), left
	case neverFalls:
		return w.sum(floor(i, w.n)*w.n-w.n, i), 0, 0
	}
	return w.sum(i-w.n+1, i), w.sum(i-w.n, i-w.n), left
}

func (w *windows) over(t, threshold int64) bool {
	whole, part, left := w.estimate(t)
	return part*left > w.room(whole, threshold)
}

// room returns the greatest part·left for which cost·(whole + part·left/period) does not exceed threshold; it is negative
// if whole alone exceeds it. Products stay below 2^63 with ten million requests and a period of seven days.
func (w *windows) room(whole, threshold int64) int64 {
	return (threshold/w.cost-whole)*w.period + threshold%w.cost*w.period/w.cost
}

func (w *windows) back(t, threshold int64) int64 {
	// Within a sub-window the estimate is monotonic.
	for i := w.index(t); ; i++ {
		begin, end := max(t, w.begin(i)), w.begin(i+1)
		if !w.over(begin, threshold) {
			return begin
		}
		if !w.over(end-1, threshold) {
			// The weight of part falls by n each microsecond.
			whole, part, left := w.estimate(begin)
			return begin - floor(w.room(whole, threshold)-part*left, part*w.n)
		}
	}
}

func (w *windows) count(t int64) int64 {
	whole, part, left := w.estimate(t)
	return whole*w.cost + part*left/w.period*w.cost + part*left%w.period*w.cost/w.period
}

// A log keeps the latest or the earliest possible times of requests.
type log struct {
	period int64
	cost   int64 // of a request
	times  []int64
}

func (l *log) add(from, to int64, most bool) {
	t := from
	if most {
		t = to
	}
	if n := len(l.times); n > 0 {
		t = max(t, l.times[n-1])
	}
	l.times = append(l.times, t)
}

// old returns how many requests have left the period that ends at t.
func (l *log) old(t int64) int {
	return sort.Search(len(l.times), func(i int) bool { return l.times[i] > t-l.period })
}

func (l *log) over(t, threshold int64) bool { return l.count(t) > threshold }

func (l *log) back(t, threshold int64) int64 {
	if !l.over(t, threshold) {
		return t
	}
	return l.times[len(l.times)-1-int(threshold/l.cost)] + l.period
}

func (l *log) count(t int64) int64 {
	old := l.old(t)
	if old > 1024 && old > len(l.times)/2 {
		l.times, old = append([]int64(nil), l.times[old:]...), 0
	}
	return int64(len(l.times)-old) * l.cost
}
