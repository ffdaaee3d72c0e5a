package chart

import (
	"cmp"
	"slices"
)

// A Scatter plots points over two logarithmic axes, and joins those that no other point beats
// in both. Points that are 0 on the vertical axis have a line of their own at the bottom.
type Scatter struct {
	Title, Note  string
	XName, YName string
	Points       []ScatterPoint
}

// A ScatterPoint has a positive X and a non-negative Y.
type ScatterPoint struct {
	X, Y float64
	Name string
	Tip  string
	Best bool // no other point beats it
}

func (s Scatter) view() view {
	if len(s.Points) < 2 {
		return view{}
	}
	var xs, ys []float64
	for _, p := range s.Points {
		xs, ys = append(xs, p.X), append(ys, p.Y)
	}
	x, y := Axis{Name: s.XName, Scale: Logarithmic}.holding(xs), Axis{Name: s.YName, Scale: Logarithmic}.holding(ys)
	if slices.Contains(ys, 0) {
		// The lowest eighth of the axis is for 0.
		const room = .125
		share := y.share
		y.share = func(v float64) float64 {
			if v == 0 {
				return room / 3
			}
			return room + (1-room)*share(v)
		}
		y.ticks = append(y.ticks, tick{at: 0, name: "0"})
	}
	return drawn(plot{Title: s.Title, Note: s.Note}, func(d *drawing) {
		d.frame(x, y, 360)
		at := func(p ScatterPoint) point { return point{d.x(x, p.X), d.y(y, p.Y)} }
		var best, points []point
		byX := slices.SortedFunc(slices.Values(s.Points), func(a, b ScatterPoint) int {
			return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(b.Y, a.Y))
		})
		for _, p := range byX {
			points = append(points, at(p))
			if !p.Best {
				continue
			}
			if len(best) > 0 { // a staircase: what lies above it is beaten
				best = append(best, point{at(p).x, best[len(best)-1].y})
			}
			best = append(best, at(p))
		}
		if len(best) > 0 {
			d.path("frontier", trace(best))
		}
		var labels []label
		for _, p := range byX {
			class := "s5 dot"
			if p.Best {
				class = "s0 dot"
			}
			d.add(mark{Kind: "circle", Class: class, X: at(p).x, Y: at(p).y, R: 6, Tip: p.Tip})
			l := label{at(p), p.Name, ""}
			if p.Best {
				l.class = strong
			}
			labels = append(labels, l)
		}
		// the labels that matter are placed first
		slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(b.class, a.class) })
		d.labels(labels, points, best)
	})
}
