package accuracy

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/edgelimit/edge/counter"
)

func methodPacked(layout counter.Layout) method {
	return method{
		name: fmt.Sprintf("packed_%dx%d", layout.Fields, layout.Bits), counters: 2, bytes: 16, aligned: true,
		make: func(l Limit, _ int64) estimator { return newPacked(l, layout) },
	}
}

func plain(l Limit) counter.Limit {
	return counter.Limit{Threshold: l.Threshold, Period: l.Period, Layout: counter.Plain}
}

// packed counts in two values, for the current and the previous window, as nodes do: with one
// field it is the weighted estimate, with several it has packed sub-windows. A client's words are the
// index of its window, prev and cur.
type packed struct{ counter.Limit }

func newPacked(l Limit, layout counter.Layout) estimator {
	limit := plain(l)
	limit.Layout = layout
	return packed{limit}
}

// rounded returns the estimator that rounds the estimates of e, which must be packed, down.
func rounded(e estimator) estimator {
	p := e.(packed)
	p.Kind = counter.WeightedRounded
	return p
}

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
		name: fmt.Sprintf("sub_windows_%d", n), counters: n + 1, bytes: 8 * (n + 1), aligned: true, whole: whole,
		make: func(l Limit, _ int64) estimator { return subWindows{l.Period, int64(n)} },
	}
	if n == 1 {
		m.make = newWeighted
	}
	if whole {
		m.name += "_whole"
	}
	return m
}

// subWindows counts each 1/n of the period separately. The oldest sub-window, in which the
// period begins, is weighted by the part of it that is in the period.
//
// A client's words are the index of its sub-window since the epoch; the number of requests in
// non-empty sub-windows; the position of the first of these and their number, in 32 bits each;
// and a ring of them, each with the last 32 bits of its index, and its requests in 32 bits. It
// cannot count 2^32 or more requests of one client in one sub-window.
type subWindows struct {
	period int64
	n      int64
}

func (s subWindows) words() int { return 4 + int(s.n) }

func (s subWindows) arrive(state []uint64, at []moment, estimates []counter.Estimate) {
	latest, total, first, used, ring := int64(state[0]), state[1], state[2]>>32, state[2]&math.MaxUint32, state[3:]
	n := uint64(len(ring))
	wrap := func(place uint64) uint64 {
		if place >= n {
			return place - n
		}
		return place
	}
	for i, m := range at {
		part := m.elapsed * s.n / s.period
		index := m.index*s.n + part
		if since := index - latest; since > s.n || since < 0 {
			total, used = 0, 0
		}
		latest = index
		age := func() uint32 { return uint32(index) - uint32(ring[first]>>32) }
		for used > 0 && age() > uint32(s.n) {
			total -= ring[first] & math.MaxUint32
			first, used = wrap(first+1), used-1
		}
		if used == 0 || uint32(ring[wrap(first+used-1)]>>32) != uint32(index) {
			ring[wrap(first+used)] = uint64(uint32(index)) << 32
			used++
		}
		ring[wrap(first+used-1)]++
		total++
		oldest := uint64(0)
		if age() == uint32(s.n) {
			oldest = ring[first] & math.MaxUint32
		}
		estimates[i] = counter.Estimate{Whole: total - oldest, Part: oldest, Left: (part+1)*s.period - s.n*m.elapsed, Of: s.period}
	}
	state[0], state[1], state[2] = uint64(latest), total, first<<32|used
}

// countWhole counts the weighted part of estimates in full.
func countWhole(estimates []counter.Estimate) {
	for i := range estimates {
		e := &estimates[i]
		*e = counter.Estimate{Whole: e.Whole + e.Part, Of: 1}
	}
}
