package figure

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/analysis/page"
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
func (l *Timeline) Plot(title string) page.Block {
	step, peak := time.Duration(l.StepS)*time.Second, time.Duration(l.PeakS)*time.Second
	a := page.Area{
		Title: title, From: l.From, Step: step, Note: fmt.Sprintf("UTC; the busiest %s of each %s", Brief(peak), Brief(step)),
		Name: "requests in " + Brief(peak), AllName: "requests", PartName: "refused",
	}
	if peak == step {
		a.Note = "UTC, in steps of " + Brief(step)
	}
	for _, p := range l.Points {
		a.All, a.Part = append(a.All, p.Peak), append(a.Part, p.PeakRefused)
	}
	return a
}
