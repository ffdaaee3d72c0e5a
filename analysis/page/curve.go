package page

import (
	"fmt"
	"math"
)

// A Curve is lines of counts over a logarithmic axis, the counts on a scale of log(1+n), so
// that there is room for 0.
type Curve struct {
	Title, Note  string
	XName, YName string
	Lines        []Line

	// Budget is a count that is marked by a line across; 0 is none. Its name stands on it.
	Budget     float64
	BudgetName string
}

// A Line is one of a Curve.
type Line struct {
	Name   string
	Points []LinePoint
}

// A LinePoint is a count at a positive X.
type LinePoint struct {
	X    float64
	N    uint64
	Tip  string
	Name string // what it stands out for, written beside it; empty for none
	Knee bool   // it has a ring
}

// colours is how many lines can be told apart.
const colours = 6

func (c Curve) view() view {
	const height = 380
	least, greatest, most := math.Inf(1), 0.0, uint64(0)
	for _, l := range c.Lines {
		for _, p := range l.Points {
			least, greatest, most = min(least, p.X), max(greatest, p.X), max(most, p.N)
		}
	}
	if greatest == 0 {
		return view{}
	}
	d := newDrawing(c.Title, c.Note, height)
	d.Height += 14 // for the name of the axis
	x, y := logarithmic(c.XName, least, greatest), withZero(c.YName, max(float64(most), c.Budget))
	d.axes(x, y)
	if c.Budget > 0 {
		at := d.y(y, c.Budget)
		d.line("budget", d.left, at, d.right, at)
		d.text("tick", "end", d.right, at-5, c.BudgetName)
	}
	var labels []label
	var points []point
	paths := [][]point{{{d.left, d.y(y, c.Budget)}, {d.right, d.y(y, c.Budget)}}}
	for i, l := range c.Lines {
		class := fmt.Sprintf("s%d", i%colours)
		var path []point
		for _, p := range l.Points {
			path = append(path, point{d.x(x, p.X), d.y(y, float64(p.N))})
		}
		d.path(class+" curve", trace(path))
		d.Keys = append(d.Keys, key{l.Name, class})
		points, paths = append(points, path...), append(paths, path)
	}
	for i, l := range c.Lines {
		class := fmt.Sprintf("s%d", i%colours)
		for _, p := range l.Points {
			at := point{d.x(x, p.X), d.y(y, float64(p.N))}
			m := mark{Kind: "circle", Class: class + " dot", X: at.x, Y: at.y, R: 3.5, Tip: p.Tip}
			if p.Knee {
				d.add(mark{Kind: "circle", Class: class + " ring", X: at.x, Y: at.y, R: 7.5, Tip: p.Tip})
			}
			if p.Name != "" {
				m.R = 6
				labels = append(labels, label{at, p.Name, strong})
			}
			d.add(m)
		}
	}
	d.labels(labels, points, paths...)
	return view{Chart: d}
}
