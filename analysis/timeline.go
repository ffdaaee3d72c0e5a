package analysis

import "time"

// maxPoints is how many parts a timeline has at most.
const maxPoints = 512

// timeline gathers a Timeline. Where it becomes too long, its parts become twice as long.
type timeline struct {
	from   int64 // in seconds
	step   int64
	points []Point
}

// add takes in a request at t, in microseconds. t must not fall.
func (l *timeline) add(t int64, refused bool) {
	second := t / 1e6
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
func (l *timeline) halve() {
	for i := range l.points {
		p := l.points[i]
		l.points[i] = Point{}
		l.points[i/2].Requests += p.Requests
		l.points[i/2].Refused += p.Refused
	}
	l.points = l.points[:(len(l.points)+1)/2]
	l.step *= 2
}

func (l *timeline) report() Timeline {
	return Timeline{From: time.Unix(l.from, 0).UTC(), StepS: l.step, Points: l.points}
}
