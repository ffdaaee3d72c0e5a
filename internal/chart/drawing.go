package chart

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A plot is a drawing with axes, and its data as a table.
type plot struct {
	Title, Note  string
	Keys         []Key
	XName, YName string
	Drawing      *drawing
	Data         Table
}

// A drawing is the area between the axes of a plot as SVG. It has the width of the screen. So positions in it are
// shares of its size, and only texts and circles have sizes in pixels.
type drawing struct {
	Labeled      bool // wider than phones, and higher
	paths, marks strings.Builder
}

// A point is a position in a drawing: shares of its width and height, from the lower left corner.
type point struct{ x, y float64 }

// place returns the attributes of a position.
func (p point) place(x, y string) string {
	return fmt.Sprintf(`%s="%v%%" %s="%v%%"`, x, hundredth(100*p.x), y, hundredth(100-100*p.y))
}

// hundredth rounds to hundredths; finer differences are invisible.
func hundredth(v float64) float64 { return math.Round(100*v) / 100 }

// Paths returns the curves, in a square of 1000 by 1000 that is stretched.
func (d *drawing) Paths() template.HTML { return template.HTML(d.paths.String()) }

// Marks returns what lies above the curves.
func (d *drawing) Marks() template.HTML { return template.HTML(d.marks.String()) }

func (d *drawing) path(class string, points ...point) {
	fmt.Fprintf(&d.paths, `<path class="%s" d="`, class)
	for i, p := range points {
		fmt.Fprintf(&d.paths, "%c%v %v", "ML"[min(i, 1)], hundredth(1000*p.x), hundredth(1000-1000*p.y))
	}
	d.paths.WriteString("\"/>\n")
}

// mark adds an element. Tip is shown below the pointer.
func (d *drawing) mark(element, attributes, class, tip string) {
	fmt.Fprintf(&d.marks, "<%s class=\"%s\" %s><title>%s</title></%[1]s>\n", element, class, attributes,
		template.HTMLEscapeString(tip))
}

func (d *drawing) circle(class string, at point, r float64, tip string) {
	d.mark("circle", fmt.Sprintf(`%s r="%v"`, at.place("cx", "cy"), r), class, tip)
}

// rect adds a rectangle with two opposite corners.
func (d *drawing) rect(class string, from, to point, tip string) {
	d.mark("rect", fmt.Sprintf(`%s width="%v%%" height="%v%%"`, point{from.x, to.y}.place("x", "y"),
		hundredth(100*(to.x-from.x)), hundredth(100*(to.y-from.y))), class, tip)
}

// text adds text that begins, ends or is centered (start, end, middle) some pixels from a point.
func (d *drawing) text(class, anchor string, at point, right, down float64, text string) {
	fmt.Fprintf(&d.marks, "<text class=\"%s\" %s dx=\"%v\" dy=\"%v\" text-anchor=\"%s\">%s</text>\n", class,
		at.place("x", "y"), right, down, anchor, template.HTMLEscapeString(text))
}

// frame draws the grid and the ticks of both axes.
func (d *drawing) frame(x, y axis) {
	for _, t := range y.ticks {
		at := y.share(t.at)
		d.path("grid", point{0, at}, point{1, at})
		d.text("tick", "end", point{0, at}, -8, 4, t.name)
	}
	for _, t := range x.ticks {
		at := x.share(t.at)
		d.path("grid", point{at, 0}, point{at, 1})
	}
	d.across(x, 0)
	d.path("axis", point{0, 0}, point{1, 0})
}

// across writes the ticks of a horizontal axis, as many as there is room for. Phones have room for every second one.
func (d *drawing) across(x axis, height float64) {
	const most = 20
	every := (len(x.ticks) + most - 1) / most
	for i := 0; i < len(x.ticks); i += every {
		class := "tick"
		if i/every%2 == 1 {
			class = "tick fine"
		}
		d.text(class, "middle", point{x.share(x.ticks[i].at), height}, 0, 18, x.ticks[i].name)
	}
}

// A label is a text next to a point.
type label struct {
	at          point
	class, text string
}

// Labels are placed for a drawing of this size in pixels, the smallest that labeled drawings have.
const labeledWidth, labeledHeight = 700, 320

// labels writes texts next to their points, such that they cover neither each other nor a point, and a curve only if
// there is no room elsewhere. A text without room is omitted: tips and tables have it.
func (d *drawing) labels(labels []label, points []point, curves ...[]point) {
	pixels := func(p point) point { return point{p.x * labeledWidth, (1 - p.y) * labeledHeight} }
	var taken, crossed []box
	for _, p := range points {
		p = pixels(p)
		taken = append(taken, box{p.x - 6, p.y - 6, p.x + 6, p.y + 6})
	}
	for _, curve := range curves {
		for i := range max(0, len(curve)-1) {
			a, b := pixels(curve[i]), pixels(curve[i+1])
			n := math.Hypot(b.x-a.x, b.y-a.y) / 8
			for k := range int(n) {
				x, y := a.x+(b.x-a.x)*float64(k)/n, a.y+(b.y-a.y)*float64(k)/n
				crossed = append(crossed, box{x, y, x, y})
			}
		}
	}
	for _, l := range labels {
		d.Labeled = true
		at, w := pixels(l.at), 7.2*float64(utf8.RuneCountInString(l.text))
		var best, start point // the end of the line to the text, and where the text starts
		var place box
		least := math.MaxInt
		for rank, to := range around {
			const half = 6 // of the height of a text
			x := to.x
			switch {
			case x < 0:
				x -= w
			case x == 0:
				x -= w / 2
			}
			b := box{at.x + x, at.y + to.y - half, at.x + x + w, at.y + to.y + half}
			if b.x1 < 2 || b.x2 > labeledWidth || b.y1 < -half || b.y2 > labeledHeight ||
				slices.ContainsFunc(taken, b.overlaps) {
				continue
			}
			cost := rank
			for _, c := range crossed {
				if b.overlaps(c) {
					cost += 4
				}
			}
			if cost < least {
				least, best, start, place = cost, to, point{hundredth(x), to.y + 4}, b
			}
		}
		if least == math.MaxInt {
			continue
		}
		taken = append(taken, place)
		fmt.Fprintf(&d.marks, "<svg %s>", l.at.place("x", "y"))
		if math.Hypot(best.x, best.y) > 20 {
			fmt.Fprintf(&d.marks, `<path class="leader" d="M0 0L%v %v"/>`, best.x, best.y)
		}
		fmt.Fprintf(&d.marks, "<text class=\"%s\" x=\"%v\" y=\"%v\">%s</text></svg>\n", l.class, start.x, start.y,
			template.HTMLEscapeString(l.text))
	}
}

// around are the places of a label, in pixels from its point, the best first.
var around = func() (places []point) {
	for _, distance := range []float64{13, 19, 30, 44, 60} {
		for _, to := range []point{{1, 0}, {.7, -.7}, {.7, .7}, {-1, 0}, {-.7, -.7}, {-.7, .7}, {0, -1}, {0, 1}} {
			places = append(places, point{hundredth(to.x * distance), hundredth(to.y * distance)})
		}
	}
	return places
}()

// A box is a rectangle in pixels.
type box struct{ x1, y1, x2, y2 float64 }

func (b box) overlaps(o box) bool { return b.x1 < o.x2 && o.x1 < b.x2 && b.y1 < o.y2 && o.y1 < b.y2 }
