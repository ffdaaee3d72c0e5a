package figure

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/internal/chart"
)

// A Timeline counts requests and refusals over time, in steps of the same length.
type Timeline struct {
	From   time.Time `json:"from"`
	StepS  int64     `json:"step_s"`
	PeakS  int64     `json:"peak_s"` // period of the peaks, in seconds
	Points []Point   `json:"points"`
}

// A Point is one step of a Timeline.
type Point struct {
	Requests    uint64 `json:"requests"`
	Refused     uint64 `json:"refused"` // including those that are only logged
	Peak        uint64 `json:"peak"`    // most requests in peak_s
	PeakRefused uint64 `json:"peak_refused"`
}

// Plot returns a plot of the peaks of l.
func (l *Timeline) Plot(title string) chart.Block {
	a := chart.Area{
		Title: title, From: l.From, Step: time.Duration(l.StepS) * time.Second, Note: "UTC, in steps of " + Period(l.StepS),
		Name: "requests in " + Period(l.PeakS),
	}
	if l.PeakS != l.StepS {
		a.Note = fmt.Sprintf("UTC; the busiest %s of each %s", Period(l.PeakS), Period(l.StepS))
	}
	for _, p := range l.Points {
		a.Requests, a.Refused = append(a.Requests, p.Peak), append(a.Refused, p.PeakRefused)
	}
	return a
}
