package page

import (
	"fmt"
	"slices"
	"time"
)

// An Area is counts over time, and a part of them, such as requests and refusals.
type Area struct {
	Title, Note    string
	From           time.Time
	Step           time.Duration // of each count
	All, Part      []uint64      // of the same length; Part may be empty
	AllName        string        // such as requests
	PartName       string        // such as refused
	PartIsRefusals bool          // it has the colour of what is refused
}

func (a Area) view() view {
	const height = 260
	d := newDrawing(a.Title, a.Note, height)
	if len(a.All) == 0 {
		return view{}
	}
	// The unit is one of which there are some.
	step, most := a.Step.Seconds(), float64(slices.Max(a.All))
	unit, name := 1.0, "second"
	switch {
	case most/step >= 1:
	case most/step*60 >= 1:
		unit, name = 60, "minute"
	default:
		unit, name = 3600, "hour"
	}
	rate := func(n uint64) float64 { return float64(n) / step * unit }
	y := linear(a.AllName+" per "+name, rate(slices.Max(a.All)))
	from := a.From.Unix()
	length := int64(a.Step / time.Second)
	x := overTime(from, from+length*int64(len(a.All)))
	d.axes(x, y)

	draw := func(class string, counts []uint64) {
		// Where there is nothing for a while, there is no line.
		for i := 0; i < len(counts); i++ {
			first := i
			var points []point
			for ; i < len(counts) && counts[i] > 0; i++ {
				at := d.y(y, rate(counts[i]))
				points = append(points, point{d.x(x, float64(from+length*int64(i))), at}, point{d.x(x, float64(from+length*int64(i+1))), at})
			}
			if i > first {
				points = append([]point{{points[0].x, d.bottom}}, points...)
				points = append(points, point{points[len(points)-1].x, d.bottom})
				d.path(class+" area", trace(points)+"Z")
				d.path(class+" edge", trace(points))
			}
		}
	}
	draw("s0", a.All)
	d.Keys = []key{{a.AllName, "s0"}}
	if len(a.Part) == len(a.All) && slices.Max(a.Part) > 0 {
		class := "s1"
		if a.PartIsRefusals {
			class = "refused"
		}
		draw(class, a.Part)
		d.Keys = append(d.Keys, key{a.PartName, class})
	} else {
		d.Keys = nil
	}
	for i, n := range a.All {
		at, end := a.From.Add(a.Step*time.Duration(i)), a.From.Add(a.Step*time.Duration(i+1))
		layout := "2 Jan 2006 15:04:05"
		tip := at.UTC().Format(layout) + " to "
		if at.UTC().YearDay() == end.UTC().YearDay() {
			layout = "15:04:05"
		}
		tip += fmt.Sprintf("%s UTC\n%s %s", end.UTC().Format(layout), Grouped(n), a.AllName)
		if i < len(a.Part) {
			tip += fmt.Sprintf("\n%s %s", Grouped(a.Part[i]), a.PartName)
		}
		x1, x2 := d.x(x, float64(at.Unix())), d.x(x, float64(end.Unix()))
		d.add(mark{Kind: "rect", Class: "hit", X: x1, Y: d.top, W: max(x2-x1, .1), H: d.bottom - d.top, Tip: tip})
	}
	if d.Note == "" {
		d.Note = fmt.Sprintf("UTC, one step is %s", Span(a.Step))
	}
	return view{Chart: d}
}
