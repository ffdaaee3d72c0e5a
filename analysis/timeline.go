package analysis

import (
	"cmp"
	"iter"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/counter"
)

const (
	maxTicks  = 1 << 15 // of a collector; beyond it, ticks become longer
	maxPoints = 240     // of a timeline
)

// tickLengths are the lengths of ticks, in seconds. Each is a multiple of the previous one. Further lengths double.
var tickLengths = []int64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}

// pointLengths are the lengths of a timeline's points, in seconds. Further lengths double.
var pointLengths = []int64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 3 * 3600, 6 * 3600,
	12 * 3600, 24 * 3600, 2 * 24 * 3600, 7 * 24 * 3600}

// after returns the next greater length.
func after(lengths []int64, length int64) int64 {
	for _, l := range lengths {
		if l > length {
			return l
		}
	}
	return 2 * length
}

// A TimelineCollector counts requests in ticks of a round length, which starts at one second and grows with the
// log: there are at most 32,768 ticks. The zero value is empty. It is not safe for concurrent use.
type TimelineCollector struct {
	max   int   // ticks; if 0, maxTicks
	first int64 // index of the first tick since the Unix epoch
	tick  int64 // in seconds
	ticks []Tick
}

// A Tick has the number of requests, and of those that were refused.
type Tick struct {
	Requests, Refused uint64
	held              bool // the client was mitigated at any time in the tick: see watch
}

// Add adds a request at t, in microseconds since the Unix epoch. t must not decrease.
func (l *TimelineCollector) Add(t int64, refused bool) {
	tick := l.reach(t, false)
	tick.Requests++
	if refused {
		tick.Refused++
	}
}

// reach adds the ticks up to t, and returns that of t. If held is set, the ticks from the last one on are held.
func (l *TimelineCollector) reach(t int64, held bool) *Tick {
	second := floor(t, 1e6)
	if l.ticks == nil {
		l.first, l.tick = second, 1
	}
	for floor(second, l.tick)-l.first >= int64(cmp.Or(l.max, maxTicks)) {
		l.fold()
	}
	if held {
		l.ticks[len(l.ticks)-1].held = true
	}
	at := floor(second, l.tick) - l.first
	for int64(len(l.ticks)) <= at {
		l.ticks = append(l.ticks, Tick{held: held})
	}
	return &l.ticks[len(l.ticks)-1]
}

// fold makes ticks longer.
func (l *TimelineCollector) fold() {
	next := after(tickLengths, l.tick)
	factor := next / l.tick
	first := floor(l.first, factor)
	offset := l.first - first*factor
	folded := make([]Tick, (int64(len(l.ticks))-1+offset)/factor+1)
	for i, t := range l.ticks {
		f := &folded[(int64(i)+offset)/factor]
		f.Requests += t.Requests
		f.Refused += t.Refused
		f.held = f.held || t.held
	}
	l.first, l.tick, l.ticks = first, next, folded
}

// in yields the ticks of l, with their indexes in all. All requests of l must also be in all.
func (l *TimelineCollector) in(all *TimelineCollector) iter.Seq2[int64, Tick] {
	for len(l.ticks) > 0 && l.tick < all.tick {
		l.fold()
	}
	return func(yield func(int64, Tick) bool) {
		for i, t := range l.ticks {
			if !yield(l.first+int64(i)-all.first, t) {
				return
			}
		}
	}
}

// floor returns t divided by length, rounded down.
func floor(t, length int64) int64 {
	n, _ := counter.WindowAt(t, length)
	return n
}

// Timeline returns the requests so far, in at most 240 points of a round length.
func (l *TimelineCollector) Timeline() figure.Timeline {
	if len(l.ticks) == 0 {
		return figure.Timeline{From: time.Unix(0, 0).UTC()}
	}
	step := l.tick
	for from := l.first * l.tick; ; step = after(pointLengths, step) {
		if step%l.tick == 0 && floor(from+int64(len(l.ticks)-1)*l.tick, step)-floor(from, step) < maxPoints {
			break
		}
	}
	begin := floor(l.first*l.tick, step)
	t := figure.Timeline{From: time.Unix(begin*step, 0).UTC(), StepS: step, PeakS: l.tick}
	for i, tick := range l.ticks {
		at := floor((l.first+int64(i))*l.tick, step) - begin
		for int64(len(t.Points)) <= at {
			t.Points = append(t.Points, figure.Point{})
		}
		p := &t.Points[at]
		p.Requests += tick.Requests
		p.Refused += tick.Refused
		p.Peak, p.PeakRefused = max(p.Peak, tick.Requests), max(p.PeakRefused, tick.Refused)
	}
	return t
}
