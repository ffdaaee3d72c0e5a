package analysis

import (
	"slices"
	"time"
)

// maxPoints is how many parts a timeline has at most.
const maxPoints = 512

// A TimelineCollector makes a Timeline in one pass, however long the log is: where it would
// have more than 512 parts, they become twice as long. The zero value is empty. It is not
// safe for concurrent use.
type TimelineCollector struct {
	from   int64 // in seconds
	step   int64
	points []Point
}

// Add takes in a request at t, in microseconds since the Unix epoch. t must not fall.
func (l *TimelineCollector) Add(t int64, refused bool) {
	second := second(t)
	if l.points == nil {
		l.from, l.step = second, 1
	}
	for (second-l.from)/l.step >= maxPoints {
		l.halve()
	}
	for int64(len(l.points)) <= (second-l.from)/l.step {
		l.points = append(l.points, Point{})
	}
	p := &l.points[len(l.points)-1]
	p.Requests++
	if refused {
		p.Refused++
	}
}

// halve joins each two neighbours.
func (l *TimelineCollector) halve() {
	for i := range l.points {
		p := l.points[i]
		l.points[i] = Point{}
		l.points[i/2].Requests += p.Requests
		l.points[i/2].Refused += p.Refused
	}
	l.points = l.points[:(len(l.points)+1)/2]
	l.step *= 2
}

// Timeline returns what was taken in so far.
func (l *TimelineCollector) Timeline() Timeline {
	return Timeline{From: time.Unix(l.from, 0).UTC(), StepS: l.step, Points: slices.Clone(l.points)}
}
