package chart

import "fmt"

// Lines are curves over a common axis.
type Lines struct {
	Title, Note string
	X, Y        Axis
	What        string // what the lines are, such as period
	Lines       []Line
	Cut         float64 // a value of Y that is marked by a horizontal line
	CutName     string  // empty for none
	Quiet       bool    // points have no dots
}

// A Line is one of Lines.
type Line struct {
	Name   string
	Points []LinePoint
	Loose  bool // points are gray, and not joined
}

// A LinePoint is one of a Line.
type LinePoint struct {
	X, Y float64
	Tip  string
	Name string // label of a notable point; may be empty
	Knee bool   // drawn with a ring
}

func (c Lines) view() view {
	d := &drawing{}
	p := plot{Title: c.Title, Note: c.Note, XName: c.X.Name, YName: c.Y.Name, Drawing: d,
		Data: Table{Title: c.Title, Columns: Columns(c.What, c.X.Name, c.Y.Name)}}
	var xs, ys []float64
	for i, l := range c.Lines {
		if len(c.Lines) > 1 {
			p.Keys = append(p.Keys, Key{l.Name, Color(l.class(i))})
		}
		for _, at := range l.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
			p.Data.Add(l.Name, c.X.text(at.X), c.Y.text(at.Y)).Note = at.Name
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
	if c.CutName != "" {
		ys = append(ys, c.Cut)
	}
	x, y := c.X.over(xs), c.Y.over(ys)
	d.frame(x, y)
	var curves [][]point
	if c.CutName != "" {
		at := y.share(c.Cut)
		curves = append(curves, []point{{0, at}, {1, at}})
		d.path("cut", curves[0]...)
		d.text("halo", "end", point{1, at}, 0, -5, c.CutName)
	}
	var labels []label
	var points []point
	for i, l := range c.Lines {
		first := len(points)
		for _, p := range l.Points {
			at := point{x.share(p.X), y.share(p.Y)}
			points = append(points, at)
			tip, class, r := p.Tip, l.class(i)+" dot", 3.5
			if tip == "" {
				tip = l.Name + "\n" + c.X.text(p.X) + "\n" + c.Y.text(p.Y)
			}
			if p.Knee {
				d.circle(l.class(i)+" ring", at, 7.5, tip)
			}
			if p.Name != "" {
				r = 6
				labels = append(labels, label{at, When(!l.Loose, "strong ") + "halo", p.Name})
			}
			if c.Quiet {
				class, r = "hit", 6
			}
			d.circle(class, at, r, tip)
		}
		if !l.Loose {
			curves = append(curves, points[first:])
			d.path(l.class(i)+" curve", points[first:]...)
		}
	}
	d.labels(labels, points, curves...)
	return view{Plot: &p}
}

// class returns the class of the ith line.
func (l Line) class(i int) string {
	const colors = 6
	if l.Loose {
		i = colors - 1
	}
	return fmt.Sprintf("s%d", i%colors)
}
