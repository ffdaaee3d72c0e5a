package chart

import (
	"fmt"
	"slices"
)

// Lines are curves over a common axis.
type Lines struct {
	Title, Note string
	X, Y        Axis
	What        string // what the lines are, such as period
	Lines       []Line
	Cuts        []Cut // marked values of Y
	Quiet       bool  // points have no dots
}

// A Line is one of Lines.
type Line struct {
	Name   string
	Points []LinePoint
}

// A LinePoint is one of a Line.
type LinePoint struct {
	X, Y float64
	Tip  string
	Name string // label of a notable point; may be empty
	Knee bool   // drawn with a ring
}

// A Cut is a value marked by a horizontal line.
type Cut struct {
	At   float64
	Name string
}

// colors is the number of lines that can be told apart.
const colors = 6

func (c Lines) view() view {
	p := plot{Title: c.Title, Note: c.Note, Data: Table{Title: c.Title, Columns: Columns(c.What, c.X.Name, c.Y.Name)}}
	var xs, ys []float64
	c.Lines, c.Cuts = slices.Clone(c.Lines),
		slices.DeleteFunc(slices.Clone(c.Cuts), func(cut Cut) bool { return c.Y.misses(cut.At) })
	for i, l := range c.Lines {
		l.Points = slices.DeleteFunc(slices.Clone(l.Points),
			func(p LinePoint) bool { return c.X.misses(p.X) || c.Y.misses(p.Y) })
		c.Lines[i] = l
		if len(c.Lines) > 1 {
			p.Keys = append(p.Keys, key{l.Name, fmt.Sprintf("s%d", i%colors)})
		}
		for _, at := range l.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
			p.Data.Rows = append(p.Data.Rows, Row{Cells: []string{l.Name, c.X.text(at.X), c.Y.text(at.Y)}, Note: at.Name})
		}
	}
	if len(xs) < 2 {
		return view{}
	}
	if len(c.Lines) == 1 {
		p.Data.Columns = p.Data.Columns[1:]
		for i := range p.Data.Rows {
			p.Data.Rows[i].Cells = p.Data.Rows[i].Cells[1:]
		}
	}
	if c.X.Scale == Elapsed {
		p.Data.Columns[len(p.Data.Columns)-2].Name = "time"
	}
	for _, cut := range c.Cuts {
		ys = append(ys, cut.At)
	}
	x, y := c.X.holding(xs), c.Y.holding(ys)
	return drawn(p, func(d *drawing) {
		d.frame(x, y, 300)
		var labels []label
		var points []point
		var paths [][]point
		for _, cut := range c.Cuts {
			at := d.y(y, cut.At)
			d.line("cut", d.left, at, d.right, at)
			d.text("halo", "end", d.right, at-5, cut.Name)
			paths = append(paths, []point{{d.left, at}, {d.right, at}})
		}
		place := func(at LinePoint) point { return point{d.x(x, at.X), d.y(y, at.Y)} }
		for i, l := range c.Lines {
			var path []point
			for _, at := range l.Points {
				path = append(path, place(at))
			}
			d.path(fmt.Sprintf("s%d curve", i%colors), trace(path))
			paths = append(paths, path)
			if !c.Quiet {
				points = append(points, path...)
			}
		}
		for i, l := range c.Lines {
			class := fmt.Sprintf("s%d", i%colors)
			for _, p := range l.Points {
				at := place(p)
				m := mark{Kind: "circle", Class: class + " dot", X: at.x, Y: at.y, R: 3.5, Tip: p.Tip}
				if c.Quiet {
					m.Class, m.R = "hit", 6
				}
				if p.Knee {
					d.add(mark{Kind: "circle", Class: class + " ring", X: at.x, Y: at.y, R: 7.5, Tip: p.Tip})
				}
				if p.Name != "" {
					m.R = 6
					labels = append(labels, label{at, p.Name, strong})
				}
				if m.Tip == "" {
					m.Tip = l.Name + "\n" + c.X.text(p.X) + "\n" + c.Y.text(p.Y)
				}
				if !c.Quiet || !d.Narrow { // phones have no pointer
					d.add(m)
				}
			}
		}
		d.labels(labels, points, paths...)
	})
}
