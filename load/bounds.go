package load

import (
	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// A model is how a limiter counts.
type model struct {
	more  int64 // how much greater its thresholds are than the rules say
	fixed bool  // it forgets the window before
}

// A count is what may have been counted of a key for one limit: by windows, and exactly. Times
// are in microseconds since the Unix epoch and must not fall.
type count struct {
	exact           analysis.SlidingLog
	window          int64  // the number of the current one
	prev, cur, next uint64 // numbers of windows, in the layout of the limit
}

// roll makes the window of t the current one, unless a later one is.
func (c *count) roll(t, period int64) {
	n := t / period
	switch {
	case n <= c.window:
		return
	case n == c.window+1:
		c.prev, c.cur, c.next = c.cur, c.next, 0
	case n == c.window+2:
		c.prev, c.cur, c.next = c.next, 0, 0
	default:
		c.prev, c.cur, c.next = 0, 0, 0
	}
	c.window = n
}

// at returns the numbers that an estimate at t looks at, and when its window began.
func (c *count) at(t, period int64) (prev, cur uint64, start int64) {
	switch n := t / period; {
	case n <= c.window:
		return c.prev, c.cur, c.window * period
	case n == c.window+1:
		return c.cur, c.next, n * period
	case n == c.window+2:
		return c.next, 0, n * period
	default:
		return 0, 0, n * period
	}
}

// An over says whether a limit is exceeded, and until when it is if nothing more comes.
type over struct {
	exact, estimate           bool
	exactUntil, estimateUntil int64
}

// over holds what is counted at t against a limit. longer is by how much the exact log's period
// is.
func (c *count) over(t int64, l counter.Limit, longer int64, m model) (o over) {
	prev, cur, start := c.at(t, l.Period)
	elapsed := max(0, t-start)
	if m.fixed {
		if l.Layout.Sum(cur) > l.Threshold {
			until := start + l.Period
			return over{true, true, until, until}
		}
		return o
	}
	if l.Over(prev, cur, elapsed) {
		o.estimate, o.estimateUntil = true, start+l.Back(prev, cur, elapsed)
	}
	if period := l.Period + longer; period > 0 && c.exact.Count(t, period) > l.Threshold {
		o.exact, o.exactUntil = true, c.exact.Back(l.Threshold, period)
	}
	return o
}

// A bound is what may and what must have been counted of a key for one limit.
type bound struct {
	limit counter.Limit
	most  count // all that may have been counted
	least count // all that must have been
	all   count // all that was sent, whether it was refused or not
	seen  analysis.SlidingLog
	peak  uint64 // most requests that passed in a period
}

// A key is what a rule counts together.
type key struct {
	rule   *rule.Rule
	bounds []bound

	// A limiter that counts by an exact log, or by the estimate, or by anything between,
	// may refuse requests until mayUntil, and must refuse them until mustUntil.
	mayUntil, mustUntil int64

	refused      bool // ever
	overExact    bool // ever, by all that was sent
	overEstimate bool
}

func newKey(r *rule.Rule, m model) *key {
	k := &key{rule: r, bounds: make([]bound, len(r.Limits))}
	for i, l := range r.Limits {
		k.bounds[i].limit = l.Counted()
		k.bounds[i].limit.Threshold = uint64(max(0, int64(l.Threshold)+m.more))
	}
	return k
}

// A slack is how much later than it might something may happen, in microseconds.
type slack struct {
	lag  int64 // until all nodes have counted, and know of a mitigation
	skew int64 // between clocks
}

// A stretch is when a request may have been counted, in sub-windows since the Unix epoch; a
// window without them is one of them.
type stretch struct {
	first, last int64
	fields      int64 // sub-windows of a window
	period      int64
}

// A node takes requests for older than they are by so much, where sub-windows last no whole
// seconds.
const tick = 10_000 // microseconds

// stretchOf returns the sub-windows between two times.
func stretchOf(from, to int64, l counter.Limit, s slack) stretch {
	n := int64(l.Layout.Fields)
	if from -= s.skew; n > 1 {
		from -= tick
	}
	return stretch{from * n / l.Period, (to + s.skew) * n / l.Period, n, l.Period}
}

// in returns the window of a sub-window, and what a request there adds to its number.
func (s stretch) in(sub int64, l counter.Layout) (window int64, delta uint64) {
	return sub / s.fields, 1 << (uint(l.Bits) * uint(sub%s.fields))
}

// starts returns when the sub-window begins.
func (s stretch) starts(sub int64) int64 { return (sub*s.period + s.fields - 1) / s.fields }

// add counts a request in each sub-window that it may lie in. from must not fall.
func (c *count) add(from, to int64, l counter.Limit, s slack) {
	in := stretchOf(from, to, l, s)
	c.roll(in.starts(in.first), l.Period)
	for sub := in.first; sub <= in.last; sub++ {
		switch window, delta := in.in(sub, l.Layout); window - c.window {
		case -1:
			c.prev = l.Layout.Add(c.prev, delta)
		case 0:
			c.cur = l.Layout.Add(c.cur, delta)
		case 1:
			c.next = l.Layout.Add(c.next, delta)
		}
	}
	c.exact.Add(from, l.Period+s.lag)
}

// greatest calls f with the limit as it is when it may be exceeded by most, while a request is
// counted: at once, and at the beginning of each sub-window after that.
func (c *count) greatest(from, to int64, l counter.Limit, s slack, m model, f func(over)) {
	in := stretchOf(from, to, l, s)
	f(c.over(from-s.skew, l, s.lag, m))
	for sub := in.first + 1; sub <= in.last; sub++ {
		if at := in.starts(sub); at > from-s.skew {
			f(c.over(at, l, s.lag, m))
		}
	}
}

// sent takes in that a request was sent, which may be counted between from and to.
func (k *key) sent(from, to int64, s slack, m model) {
	for i := range k.bounds {
		b := &k.bounds[i]
		b.most.add(from, to, b.limit, s)
		b.most.greatest(from, to, b.limit, s, m, func(o over) {
			if o.exact {
				k.mayUntil = max(k.mayUntil, o.exactUntil+s.lag)
			}
			if o.estimate {
				k.mayUntil = max(k.mayUntil, o.estimateUntil+s.lag)
			}
			if o.exact || o.estimate {
				k.mayUntil = max(k.mayUntil, to+k.rule.MitigationTimeout.Microseconds()+s.lag)
			}
		})
	}
}

// passed takes in that a request was counted by now, to which the slack is added. It was sent
// at from.
func (k *key) passed(from, now int64, s slack, m model) {
	for i := range k.bounds {
		b := &k.bounds[i]
		late := now + s.lag
		b.least.roll(late, b.limit.Period)
		in := stretchOf(from, now, b.limit, s)
		switch window, delta := in.in(in.first, b.limit.Layout); window - b.least.window {
		case -1:
			b.least.prev = b.limit.Layout.Add(b.least.prev, delta)
		case 0:
			b.least.cur = b.limit.Layout.Add(b.least.cur, delta)
		}
		if b.limit.Period > s.lag {
			b.least.exact.Add(now, b.limit.Period-s.lag)
		}
		o := b.least.over(late, b.limit, -s.lag, m)
		if o.exact && o.estimate {
			until := max(from+k.rule.MitigationTimeout.Microseconds(), min(o.exactUntil, o.estimateUntil))
			k.mustUntil = max(k.mustUntil, until-s.lag)
		}
	}
}

// asked takes in that a request was sent, whatever became of it.
func (k *key) asked(from, to int64, s slack) {
	for i := range k.bounds {
		b := &k.bounds[i]
		b.all.add(from, to, b.limit, s)
		b.all.greatest(from, to, b.limit, s, model{}, func(o over) {
			k.overExact, k.overEstimate = k.overExact || o.exact, k.overEstimate || o.estimate
		})
	}
}
