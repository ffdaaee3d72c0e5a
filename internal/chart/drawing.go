package chart

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// A drawing is a plot as SVG, in units of pixels.
type drawing struct {
	Width, Height float64
	Narrow        bool
	Marks         []mark

	left, right, top, bottom float64 // of the area between the axes
	texts                    []box
}

// A mark is an SVG element: a path, rect, circle or text.
type mark struct {
	Kind, Class string
	X, Y        float64
	W, H, R     float64
	D           string
	Text        string
	Anchor      string
	Tip         string // shown below the pointer
}

// tenth rounds to tenths; finer differences are invisible.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }

func (d *drawing) add(m mark) {
	for _, v := range []*float64{&m.X, &m.Y, &m.W, &m.H, &m.R} {
		*v = tenth(*v)
	}
	d.Marks = append(d.Marks, m)
}

// text writes text, unless it would cover other text or exceed the drawing. It reports whether
// it was written.
func (d *drawing) text(class, anchor string, x, y float64, text string) bool {
	w := widthOf(text, class)
	x1 := x
	switch anchor {
	case "end":
		x1 -= w
	case "middle":
		x1 = min(max(x-w/2, 0), d.Width-w)
		anchor, x = "start", x1
	}
	b := box{x1, y - 10, x1 + w, y + 3}
	if b.x1 < -.01 || b.x2 > d.Width+.01 || b.y1 < 0 || d.Height > 0 && b.y2 > d.Height ||
		slices.ContainsFunc(d.texts, func(other box) bool { return b.overlap(other) > 0 }) {
		return false
	}
	d.texts = append(d.texts, b)
	d.add(mark{Kind: "text", Class: class, Anchor: anchor, X: x, Y: y, Text: text})
	return true
}

// widthOf returns the maximum width of a text in the fonts of pages.
func widthOf(text, class string) (w float64) {
	for _, r := range text {
		switch {
		case strings.ContainsRune("iIjltfr.,:;'|!()[]/ -", r):
			w += 5
		case strings.ContainsRune("mwMW%@…", r), r >= 0x1100, !unicode.IsPrint(r):
			w += 12
		case 'A' <= r && r <= 'Z':
			w += 9
		default:
			w += 7.7
		}
	}
	if strings.Contains(class, strong) {
		w *= 1.12
	}
	return w
}

// shortened returns text, shortened to a width of at most w.
func shortened(text string, w float64) string {
	if widthOf(text, "") <= w+.01 {
		return text
	}
	letters := []rune(text)
	for len(letters) > 1 && widthOf(string(letters), "")+12 > w {
		letters = letters[:len(letters)-1]
	}
	return string(letters) + "…"
}

func (d *drawing) path(class, data string) { d.add(mark{Kind: "path", Class: class, D: data}) }

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.path(class, trace([]point{{x1, y1}, {x2, y2}}))
}

// A point is a position in a drawing.
type point struct{ x, y float64 }

// trace returns the SVG data of a path through points.
func trace(points []point) string {
	var b strings.Builder
	for i, p := range points {
		fmt.Fprintf(&b, "%c%v %v", "ML"[min(i, 1)], tenth(p.x), tenth(p.y))
	}
	return b.String()
}

// frame draws the grid, the ticks and the names of both axes. height is that of the area between
// the axes.
func (d *drawing) frame(x, y axis, height float64) {
	names := 0.0
	for _, t := range y.ticks {
		names = max(names, widthOf(t.name, ""))
	}
	d.left, d.right, d.top = names+10, d.Width-16, 26
	d.bottom = d.top + height
	d.Height = d.bottom + 28
	if x.name != "" {
		d.Height += 18
	}
	for _, t := range y.ticks {
		at := d.y(y, t.at)
		d.line("grid", d.left, at, d.right, at)
		d.text("tick", "end", d.left-8, at+4, t.name)
	}
	d.across(x, 18)
	d.line("axis", d.left, d.bottom, d.right, d.bottom)
	d.text("tick", "start", 0, 12, y.name)
	if x.name != "" {
		d.text("tick", "end", d.right, d.bottom+36, x.name)
	}
}

// across draws the ticks of a horizontal axis: all of them, or every second, third … so that they
// do not overlap.
func (d *drawing) across(x axis, below float64) {
	every := 1
	for ; every < len(x.ticks); every++ {
		end, room := math.Inf(-1), true
		for i := 0; i < len(x.ticks); i += every {
			w := widthOf(x.ticks[i].name, "")
			start := min(max(d.x(x, x.ticks[i].at)-w/2, 0), d.Width-w)
			room, end = room && start > end+4, start+w
		}
		if room {
			break
		}
	}
	for i := 0; i < len(x.ticks); i += every {
		if at := d.x(x, x.ticks[i].at); d.text("tick", "middle", at, d.bottom+below, x.ticks[i].name) {
			d.line("grid", at, d.top, at, d.bottom)
		}
	}
}

// x and y return the position of a value.
func (d *drawing) x(a axis, v float64) float64 { return d.left + a.share(v)*(d.right-d.left) }
func (d *drawing) y(a axis, v float64) float64 { return d.bottom - a.share(v)*(d.bottom-d.top) }

// A label is a text next to a point.
type label struct {
	at    point
	text  string
	class string
}

// strong is the class of the most important labels.
const strong = "strong"

// labels writes texts next to their points. Texts do not overlap, and cover a point or a path only if
// there is no room elsewhere. A text that does not fit is omitted: tips and tables have it.
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
		w := widthOf(l.text, l.class)
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
				b := box{x, y - 7, x + w, y + 7}
				if b.x1 < d.left+2 || b.x2 > d.Width || b.y1 < d.top-6 || b.y2 > d.bottom ||
					slices.ContainsFunc(d.texts, func(other box) bool { return b.overlap(other) > 0 }) {
					continue
				}
				cost := distance / 10
				for _, other := range taken {
					cost += b.overlap(other)
				}
				if cost < least {
					best, least = b, cost
				}
			}
		}
		if least > 200 {
			continue
		}
		near := point{min(max(l.at.x, best.x1), best.x2), (best.y1 + best.y2) / 2}
		if math.Hypot(near.x-l.at.x, near.y-l.at.y) > 16 {
			d.line("leader", l.at.x, l.at.y, near.x, near.y)
		}
		d.texts = append(d.texts, best)
		d.add(mark{Kind: "text", Class: strings.TrimSpace("halo " + l.class), Anchor: "start", X: best.x1, Y: best.y2 - 3,
			Text: l.text})
	}
}

// A box is a rectangle in a drawing.
type box struct{ x1, y1, x2, y2 float64 }

// overlap returns the area of the intersection of b and o.
func (b box) overlap(o box) float64 {
	w, h := min(b.x2, o.x2)-max(b.x1, o.x1), min(b.y2, o.y2)-max(b.y1, o.y1)
	return max(w, 0) * max(h, 0)
}
