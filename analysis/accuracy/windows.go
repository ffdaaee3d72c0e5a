package accuracy

import (
	"fmt"
	"math/bits"

	"github.com/edgelimit/edge/counter"
)

// makePacked makes packed estimators of a kind with a layout or, if it has no fields, the best one for the threshold.
func makePacked(kind counter.Kind, layout counter.Layout) func(Limit, int64) estimator {
	return func(l Limit, _ int64) estimator {
		counted := counter.Limit{Threshold: l.Threshold, Period: l.Period, Kind: kind, Layout: layout}
		if layout.Fields == 0 {
			counted.Layout = counter.AutoLayout(l.Threshold, counter.MaxFields)
		}
		return packed{counted}
	}
}

// packed counts in two values, for the current and the previous window, as nodes do: with one
// field it is the weighted estimate, with several it has packed sub-windows. A client's words are the
// index of its window, prev and cur.
type packed struct{ counter.Limit }

func (packed) words() int { return 3 }

func (p packed) arrive(state []uint64, at []moment, estimates []counter.Estimate) {
	index, prev, cur := state[0], state[1], state[2]
	for i, m := range at {
		switch uint64(m.index) - index {
		case 0:
		case 1:
			prev, cur = cur, 0
		default:
			prev, cur = 0, 0
		}
		index = uint64(m.index)
		if delta := p.Delta(1, m.elapsed); !p.full(cur, delta) {
			cur += delta
		}
		estimates[i] = p.Estimate(prev, cur, m.elapsed)
	}
	state[0], state[1], state[2] = index, prev, cur
}

// full reports whether the field of value that delta adds to has reached its stop. Nodes then
// no longer increment it, so that no field overflows into the next. It is faster than
// [counter.Limit.Count], which adds any number.
func (p packed) full(value, delta uint64) bool {
	field := value >> bits.TrailingZeros64(delta) & (1<<p.Layout.Bits - 1)
	return field >= p.Layout.Stop()
}

// maxSubWindows is the maximum number of sub-windows with separate counters.
const maxSubWindows = 3600

func methodSubWindows(n int, whole bool) method {
	m := method{
		name: fmt.Sprintf("sub_windows_%d", n), counters: n + 1, bytes: 8 * (n + 1), aligned: true,
		make: func(l Limit, _ int64) estimator { return subWindows{l.Period, int64(n), whole} },
	}
	if whole {
		m.name += "_whole"
	}
	return m
}

// subWindows counts each 1/n of the period separately. The oldest sub-window, in which the
// period begins, is weighted by the part of it that is in the period.
//
// A client's words are the index of its sub-window since the epoch, the number of requests in the latest n + 1
// sub-windows, and a ring of the number in each of them.
type subWindows struct {
	period int64
	n      int64
	whole  bool // counts the oldest sub-window in full
}

func (s subWindows) words() int { return 3 + int(s.n) }

func (s subWindows) arrive(state []uint64, at []moment, estimates []counter.Estimate) {
	latest, total, ring := int64(state[0]), state[1], state[2:]
	n := s.n + 1
	for i, m := range at {
		part := m.elapsed * s.n / s.period
		index := m.index*s.n + part
		place := (index%n + n) % n
		for passed := min(index-latest, n); passed > 0; passed-- {
			old := &ring[(place+n-passed+1)%n]
			total, *old = total-*old, 0
		}
		latest = index
		ring[place]++
		total++
		oldest := ring[(place+1)%n]
		if s.whole {
			oldest = 0
		}
		estimates[i] = counter.Estimate{Whole: total - oldest, Part: oldest, Left: (part+1)*s.period - s.n*m.elapsed,
			Of: s.period}
	}
	state[0], state[1] = uint64(latest), total
}
