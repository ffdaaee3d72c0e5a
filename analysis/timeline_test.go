package analysis

import (
	"testing"
)

// A timeline covers all of the log, in at most so many parts.
func TestTimeline(t *testing.T) {
	for _, tt := range []struct {
		seconds, step int64
		points        int
	}{{1, 1, 1}, {512, 1, 512}, {513, 2, 257}, {100_000, 256, 391}} {
		var l TimelineCollector
		for second := range tt.seconds {
			l.Add((1e9+second)*1e6, second%2 == 0)
		}
		r := l.Timeline()
		var requests, refused uint64
		for _, p := range r.Points {
			requests, refused = requests+p.Requests, refused+p.Refused
		}
		if r.StepS != tt.step || len(r.Points) != tt.points || requests != uint64(tt.seconds) || refused != uint64(tt.seconds+1)/2 || r.From.Unix() != 1e9 {
			t.Errorf("%d s: %d parts of %d s from %v with %d requests, %d refused", tt.seconds, len(r.Points), r.StepS, r.From, requests, refused)
		}
	}
	// A pause of years is no work of years.
	var l TimelineCollector
	l.Add(0, false)
	l.Add(1e9*1e6, false)
	if len(l.points) > maxPoints || l.points[len(l.points)-1].Requests != 1 {
		t.Errorf("%d points after a pause", len(l.points))
	}
}
