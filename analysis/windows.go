package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/counter"
)

var methodFixed = method{
	name: "fixed", counters: 1, bytes: 8, aligned: true,
	make: func(l Limit, _ int64) estimator { return fixed{l.Period} },
}

// fixed counts the current window only. A client's words are the number of its window and
// the count.
type fixed struct{ period int64 }

func (fixed) words() int { return 2 }

func (f fixed) arrive(state []uint64, t int64) counter.Estimate {
	number, _ := window(t, f.period)
	if uint64(number) != state[0] {
		state[0], state[1] = uint64(number), 0
	}
	state[1]++
	return counter.Estimate{Whole: state[1], Of: 1}
}

var methodWeighted = method{
	name: "weighted", counters: 2, bytes: 16, aligned: true,
	make: func(l Limit, _ int64) estimator { return packed{plain(l), false} },
}

var methodPackedAuto = method{
	name: "packed_auto", counters: 2, bytes: 16, own: true, aligned: true,
	make: func(l Limit, _ int64) estimator {
		return newPacked(l, counter.AutoLayout(l.Threshold, counter.MaxFields))
	},
}

func methodPacked(layout counter.Layout) method {
	return method{
		name: fmt.Sprintf("packed_%dx%d", layout.Fields, layout.Bits), counters: 2, bytes: 16, aligned: true,
		make: func(l Limit, _ int64) estimator { return newPacked(l, layout) },
	}
}

// layouts are those of packed sub-windows, the finest first.
var layouts = func() (all []counter.Layout) {
	for fields := counter.MaxFields; fields > 1; fields-- {
		if l, ok := counter.LayoutOf(fields); ok {
			all = append(all, l)
		}
	}
	return all
}()

func plain(l Limit) counter.Limit {
	return counter.Limit{Threshold: l.Threshold, Period: l.Period, Layout: counter.Plain}
}

// packed counts in the two numbers of the current and the previous window, as a node does:
// with one field the weighted estimate, with more packed sub-windows. A client's words are
// the number of its window, prev and cur.
type packed struct {
	limit counter.Limit
	stops bool // a field that is full is not counted further
}

func newPacked(l Limit, layout counter.Layout) packed {
	limit := plain(l)
	limit.Layout = layout
	return packed{limit, true}
}

func (packed) words() int { return 3 }

func (p packed) arrive(state []uint64, t int64) counter.Estimate {
	number, elapsed := window(t, p.limit.Period)
	switch uint64(number) - state[0] {
	case 0:
	case 1:
		state[0], state[1], state[2] = uint64(number), state[2], 0
	default:
		state[0], state[1], state[2] = uint64(number), 0, 0
	}
	if delta := p.limit.Delta(1, elapsed); !p.stops || !p.full(state[2], delta) {
		state[2] += delta
	}
	return p.limit.Estimate(state[1], state[2], elapsed)
}

// full reports whether the field of number that delta adds to has reached its stop:
// then nodes stop counting it, so that no field ever overflows into the next.
func (p packed) full(number, delta uint64) bool {
	field := number / delta & (1<<p.limit.Layout.Bits - 1)
	return field >= p.limit.Layout.Stop()
}

// maxSubWindows bounds sub-windows that have counters of their own.
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

// subWindows counts each nth of the period apart. The oldest one, in which the period
// begins, is weighted by the part of it that is in the period, or counted whole.
//
// A client's words are the number of its sub-window, counted from the epoch, the requests
// of the n latest, and those of each of the n+1 latest in 32 bits, as a ring. 2^32
// requests of one client in one sub-window are more than it can tell.
type subWindows struct {
	period int64
	n      int64
	whole  bool
}

func (s subWindows) words() int { return 2 + int(s.n+2)/2 }

func (s subWindows) arrive(state []uint64, t int64) counter.Estimate {
	number, elapsed := window(t, s.period)
	at := elapsed * s.n / s.period
	latest, ring := number*s.n+at, cells(state[2:])
	if steps := latest - int64(state[0]); steps > s.n || steps < 0 {
		clear(state[1:])
	} else {
		for q := latest - steps + 1; q <= latest; q++ {
			state[1] -= ring.get(s.place(q - s.n))
			ring.add(s.place(q), -ring.get(s.place(q)))
		}
	}
	state[0] = uint64(latest)
	state[1]++
	ring.add(s.place(latest), 1)
	oldest := ring.get(s.place(latest - s.n))
	if s.whole {
		return counter.Estimate{Whole: state[1] + oldest, Of: 1}
	}
	return counter.Estimate{Whole: state[1], Part: oldest, Left: (at+1)*s.period - s.n*elapsed, Of: s.period}
}

// place returns where in the ring a sub-window is.
func (s subWindows) place(q int64) int64 {
	place := q % (s.n + 1)
	if place < 0 {
		place += s.n + 1
	}
	return place
}

// cells are numbers of 32 bits, two in a word.
type cells []uint64

func (c cells) get(i int64) uint64 { return c[i/2] >> (32 * (i % 2)) & (1<<32 - 1) }

// add adds n to the ith cell. The sum must fit it.
func (c cells) add(i int64, n uint64) { c[i/2] += n << (32 * (i % 2)) }
