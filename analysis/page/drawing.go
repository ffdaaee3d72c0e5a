package page

import (
	"fmt"
	"math"
	"strings"
)

// A drawing is a plot as SVG, in units of its own: it is shown as wide as there is room.
type drawing struct {
	Title, Note   string
	Keys          []key
	Width, Height float64
	Marks         []mark

	left, right, top, bottom float64 // of what lies between the axes
}

// A key explains a colour.
type key struct{ Name, Class string }

// A mark is an element of SVG: a path, rect, circle or text.
type mark struct {
	Kind, Class string
	X, Y        float64
	W, H, R     float64
	D           string
	Text        string
	Anchor      string
	Tip         string // shown below the pointer
}

// width is that of all drawings.
const width = 960

func newDrawing(title, note string, height float64) *drawing {
	return &drawing{Title: title, Note: note, Width: width, Height: height, left: 62, right: width - 18, top: 26, bottom: height - 30}
}

// tenth rounds to what can be seen.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }

func (d *drawing) add(m mark) {
	for _, v := range []*float64{&m.X, &m.Y, &m.W, &m.H, &m.R} {
		*v = tenth(*v)
	}
	d.Marks = append(d.Marks, m)
}

func (d *drawing) text(class, anchor string, x, y float64, text string) {
	d.add(mark{Kind: "text", Class: class, Anchor: anchor, X: x, Y: y, Text: text})
}

func (d *drawing) path(class, data string) { d.add(mark{Kind: "path", Class: class, D: data}) }

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.path(class, fmt.Sprintf("M%v %vL%v %v", tenth(x1), tenth(y1), tenth(x2), tenth(y2)))
}

// A point is where something is in a drawing.
type point struct{ x, y float64 }

// trace returns the data of a path through points.
func trace(points []point) string {
	var b strings.Builder
	for i, p := range points {
		fmt.Fprintf(&b, "%c%v %v", "ML"[min(i, 1)], tenth(p.x), tenth(p.y))
	}
	return b.String()
}

// axes draws the grid and the names of ticks of both axes, and what they measure.
func (d *drawing) axes(x, y axis) {
	for _, t := range y.ticks {
		at := d.y(y, t.at)
		d.line("grid", d.left, at, d.right, at)
		d.text("tick", "end", d.left-8, at+4, t.name)
	}
	for _, t := range x.ticks {
		at := d.x(x, t.at)
		if !t.quiet {
			d.line("grid", at, d.top, at, d.bottom)
		}
		d.text("tick", "middle", at, d.bottom+18, t.name)
	}
	d.line("axis", d.left, d.bottom, d.right, d.bottom)
	d.text("tick", "start", 0, d.top-12, y.name)
	if x.name != "" {
		d.text("tick", "end", d.right, d.bottom+34, x.name)
	}
}

// x and y return where a value is.
func (d *drawing) x(a axis, v float64) float64 { return d.left + a.share(v)*(d.right-d.left) }
func (d *drawing) y(a axis, v float64) float64 { return d.bottom - a.share(v)*(d.bottom-d.top) }

// A label is a text beside a point.
type label struct {
	at    point
	text  string
	class string
}

// strong is the class of labels that matter most.
const strong = "strong"

// letter is about how wide a letter is, and line how high a text.
const (
	letter = 7.2
	line   = 14
)

// labels writes texts beside their points, so that they cover neither each other nor a
// point, nor cross a path, where there is room.
func (d *drawing) labels(labels []label, points []point, paths ...[]point) {
	var taken []box
	for _, p := range points {
		taken = append(taken, box{p.x - 6, p.y - 6, p.x + 6, p.y + 6})
	}
	for _, path := range paths {
		for i := 1; i < len(path); i++ {
			a, b := path[i-1], path[i]
			n := math.Ceil(math.Hypot(b.x-a.x, b.y-a.y) / 4)
			for k := range int(n) {
				p := point{a.x + (b.x-a.x)*float64(k)/n, a.y + (b.y-a.y)*float64(k)/n}
				taken = append(taken, box{p.x - 1, p.y - 1, p.x + 1, p.y + 1})
			}
		}
	}
	for _, l := range labels {
		w := letter * float64(len([]rune(l.text)))
		if l.class == strong {
			w *= 1.12
		}
		best, least := box{}, math.Inf(1)
		for _, distance := range []float64{10, 18, 30, 44, 60} {
			for _, to := range []point{{1, 0}, {.7, -.7}, {.7, .7}, {-1, 0}, {-.7, -.7}, {-.7, .7}, {0, -1}, {0, 1}} {
				x, y := l.at.x+to.x*distance, l.at.y+to.y*distance
				switch {
				case to.x < 0:
					x -= w
				case to.x == 0:
					x -= w / 2
				}
				b := box{x, y - line/2, x + w, y + line/2}
				cost := distance / 10
				for _, other := range taken {
					cost += b.overlap(other)
				}
				if b.x1 < d.left+2 || b.x2 > d.right+16 || b.y1 < d.top-6 || b.y2 > d.bottom {
					cost += 1e6
				}
				if cost < least {
					best, least = b, cost
				}
			}
		}
		taken = append(taken, best)
		near := point{min(max(l.at.x, best.x1), best.x2), (best.y1 + best.y2) / 2}
		if math.Hypot(near.x-l.at.x, near.y-l.at.y) > 16 {
			d.line("leader", l.at.x, l.at.y, near.x, near.y)
		}
		d.text("halo "+l.class, "start", best.x1, best.y2-3, l.text)
	}
}

// A box is a part of a drawing.
type box struct{ x1, y1, x2, y2 float64 }

// overlap returns how much of b is in o as well.
func (b box) overlap(o box) float64 {
	w, h := min(b.x2, o.x2)-max(b.x1, o.x1), min(b.y2, o.y2)-max(b.y1, o.y1)
	return max(w, 0) * max(h, 0)
}
