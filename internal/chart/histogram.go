package chart

import (
	"slices"
	"strings"
)

// A Histogram plots the distribution of values in adjacent bins, with a cut: what lies beyond it is
// refused.
type Histogram struct {
	Title        string
	XName, YName string
	Bins         []Bin
	Cut          float64 // at the end of a bin
	CutName      string
	Beyond       string // describes values beyond the cut, such as over the threshold
}

// A Bin counts the values that are at most UpTo, and greater than UpTo of the previous bin.
type Bin struct {
	UpTo float64
	N    uint64
}

func (h Histogram) view() view {
	p := plot{Title: h.Title, Data: Table{Title: h.Title, Columns: Columns(h.XName, h.YName)}}
	p.Data.Columns[0].Numbers = true
	most, before := uint64(0), 0.0
	for _, b := range h.Bins {
		name := Axis{}.text(b.UpTo)
		if before+1 < b.UpTo {
			name = Axis{}.text(before+1) + "–" + name
		}
		r := Row{Cells: []string{name, Grouped(b.N)}}
		if b.UpTo > h.Cut {
			r.Note = h.Beyond
		}
		p.Data.Rows = append(p.Data.Rows, r)
		most, before = max(most, b.N), b.UpTo
	}
	if len(h.Bins) < 2 {
		return view{}
	}
	y := withZero(h.YName, float64(most))
	n := float64(len(h.Bins))
	x := axis{name: h.XName, share: func(v float64) float64 { return v / n }}
	for i, b := range h.Bins {
		x.ticks = append(x.ticks, tick{at: float64(i + 1), name: short(b.UpTo)})
	}
	p.Keys = []key{{"at most the threshold", "s0"}, {h.Beyond, "refused"}}
	return drawn(p, func(d *drawing) {
		d.frame(x, y, 230)
		cut := d.x(x, float64(slices.IndexFunc(h.Bins, func(b Bin) bool { return b.UpTo >= h.Cut })+1))
		_ = d.text("halo strong", "start", cut+6, d.top, h.CutName) ||
			d.text("halo strong", "end", cut-6, d.top, h.CutName) ||
			d.text("halo strong", "middle", cut, d.top, h.CutName)
		gap := min(3, (d.right-d.left)/n/4)
		for i, b := range h.Bins {
			class := "s0 bar"
			if b.UpTo > h.Cut {
				class = "refused bar"
			}
			x1, x2, top := d.x(x, float64(i)), d.x(x, float64(i+1)), d.y(y, float64(b.N))
			if b.N > 0 {
				d.add(mark{Kind: "rect", Class: class, X: x1 + gap/2, Y: top, W: max(x2-x1-gap, .5), H: d.bottom - top,
					R: min(2, gap)})
				if name := short(float64(b.N)); widthOf(name, "") <= x2-x1+4 { // else it would cover its neighbors
					d.text("tick", "middle", (x1+x2)/2, top-4, name)
				}
			}
			d.add(mark{Kind: "rect", Class: "hit", X: x1, Y: d.top, W: x2 - x1, H: d.bottom - d.top,
				Tip: strings.Join(p.Data.Rows[i].Cells, ": ")})
		}
		d.line("cut", cut, d.top-8, cut, d.bottom)
	})
}
