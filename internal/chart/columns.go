package chart

import (
	"slices"
	"strings"
	"time"
)

// An Area plots the requests in each step of time, and those of them that were refused.
type Area struct {
	Title, Note       string
	Name              string // what is counted, such as requests in 1m
	From              time.Time
	Step              time.Duration // of each count
	Requests, Refused []uint64      // of the same length
}

func (a Area) view() view {
	if len(a.Requests) < 2 {
		return view{}
	}
	d := &drawing{}
	p := plot{Title: a.Title, Note: a.Note, YName: a.Name, Drawing: d, Keys: []Key{{"requests", Blue}, {"refused", Red}},
		Data: Table{Title: a.Title, Columns: Columns("from", "requests", "refused")}}
	if slices.Max(a.Refused) == 0 {
		p.Keys, p.Data.Columns = nil, p.Data.Columns[:2]
	}
	end := a.From.Add(a.Step * time.Duration(len(a.Requests)))
	y := linear(float64(slices.Max(a.Requests)))
	d.frame(overTime(a.From.Unix(), end.Unix()), y)
	width := 1 / float64(len(a.Requests))
	for i := range a.Requests {
		r := p.Data.Add(a.From.Add(a.Step*time.Duration(i)).UTC().Format(time.DateTime), a.Requests[i], a.Refused[i])
		r.Cells = r.Cells[:len(p.Data.Columns)]
		tip := r.Cells[0] + " UTC"
		for k, n := range r.Cells[1:] {
			tip += "\n" + n + " " + p.Data.Columns[k+1].Name
		}
		d.rect("hit", point{width * float64(i), 0}, point{width * float64(i+1), 1}, tip)
	}
	for k, counts := range [][]uint64{a.Requests, a.Refused} {
		class := string([]Color{Blue, Red}[k])
		// Draw no line where the count is 0.
		for i := 0; i < len(counts); i++ {
			first := i
			points := []point{{width * float64(i), 0}}
			for ; i < len(counts) && counts[i] > 0; i++ {
				at := y.share(float64(counts[i]))
				points = append(points, point{width * float64(i), at}, point{width * float64(i+1), at})
			}
			if i > first {
				points = append(points, point{width * float64(i), 0})
				d.path(class+" area", points...)
				d.path(class+" edge", points...)
			}
		}
	}
	return view{Plot: &p}
}

// A Histogram plots the distribution of values in adjacent bins, with a threshold: what is over it is refused.
type Histogram struct {
	Title        string
	XName, YName string
	Bins         []Bin
	Threshold    float64 // at the end of a bin
	Name         string  // of the threshold
}

// A Bin counts the values that are at most UpTo, and greater than UpTo of the previous bin.
type Bin struct {
	UpTo float64
	N    uint64
}

func (h Histogram) view() view {
	if len(h.Bins) < 2 {
		return view{}
	}
	d := &drawing{}
	p := plot{Title: h.Title, XName: h.XName, YName: h.YName, Drawing: d,
		Keys: []Key{{"at most the threshold", Blue}, {"over the threshold", Red}},
		Data: Table{Title: h.Title, Columns: Columns(h.XName, h.YName)}}
	p.Data.Columns[0].Numbers = true
	width := 1 / float64(len(h.Bins))
	counts := []float64{0}
	x := axis{share: func(v float64) float64 { return v * width }}
	for i, b := range h.Bins {
		counts = append(counts, float64(b.N))
		x.ticks = append(x.ticks, tick{float64(i + 1), short(b.UpTo)})
	}
	y := logarithmic(counts)
	d.frame(x, y)
	before, cut := 0.0, 0.0
	for i, b := range h.Bins {
		x1, x2, top := width*float64(i), width*float64(i+1), y.share(float64(b.N))
		r := p.Data.Add(Axis{}.text(b.UpTo), b.N)
		if before+1 < b.UpTo {
			r.Cells[0] = Axis{}.text(before+1) + "–" + r.Cells[0]
		}
		color := Blue
		if b.UpTo > h.Threshold {
			r.Note, color = "over the threshold", Red
		} else {
			cut = x2
		}
		before = b.UpTo
		tip := strings.Join(r.Cells, ": ")
		if b.N > 0 {
			d.rect(string(color)+" bar", point{x1 + .04*width, 0}, point{x2 - .04*width, top}, tip)
			d.text("tick fine", "middle", point{(x1 + x2) / 2, top}, 0, -4, short(float64(b.N)))
		}
		d.rect("hit", point{x1, 0}, point{x2, 1}, tip)
	}
	d.path("cut", point{cut, 0}, point{cut, 1.04})
	anchor, right := "start", 6.0
	if cut > .6 {
		anchor, right = "end", -6
	}
	d.text("halo strong", anchor, point{cut, 1}, right, 0, h.Name)
	return view{Plot: &p}
}
