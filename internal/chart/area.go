package chart

import (
	"slices"
	"time"
)

// An Area plots a count for each step of time, and a part of each count, such as requests and
// refusals.
type Area struct {
	Title, Note string
	From        time.Time
	Step        time.Duration // of each count
	All, Part   []uint64      // of the same length; Part may be empty
	Name        string        // what is counted, such as requests per minute
	AllName     string        // such as requests
	PartName    string        // such as refused
}

func (a Area) view() view {
	if len(a.All) < 2 {
		return view{}
	}
	p := plot{Title: a.Title, Note: a.Note, Data: Table{Title: a.Title, Columns: Columns("from", a.AllName)}}
	parted := len(a.Part) == len(a.All) && slices.Max(a.Part) > 0
	if parted {
		p.Keys = []key{{a.AllName, "s0"}, {a.PartName, "refused"}}
		p.Data.Columns = Columns("from", a.AllName, a.PartName)
	}
	for i, n := range a.All {
		cells := []string{a.From.Add(a.Step * time.Duration(i)).UTC().Format(time.DateTime), Grouped(n)}
		if parted {
			cells = append(cells, Grouped(a.Part[i]))
		}
		p.Data.Rows = append(p.Data.Rows, Row{Cells: cells})
	}
	from, length := a.From.Unix(), int64(a.Step/time.Second)
	y, x := linear(a.Name, float64(slices.Max(a.All))), overTime(from, from+length*int64(len(a.All)))
	return drawn(p, func(d *drawing) {
		d.frame(x, y, 210)
		draw := func(class string, counts []uint64) {
			// Draw no line where the count is 0.
			for i := 0; i < len(counts); i++ {
				first := i
				var points []point
				for ; i < len(counts) && counts[i] > 0; i++ {
					at := d.y(y, float64(counts[i]))
					points = append(points, point{d.x(x, float64(from+length*int64(i))), at},
						point{d.x(x, float64(from+length*int64(i+1))), at})
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
		if parted {
			draw("refused", a.Part)
		}
		if d.Narrow {
			return // phones have no pointer
		}
		for i, r := range p.Data.Rows {
			x1, x2 := d.x(x, float64(from+length*int64(i))), d.x(x, float64(from+length*int64(i+1)))
			tip := r.Cells[0] + " UTC\n" + r.Cells[1] + " " + a.AllName
			if parted {
				tip += "\n" + r.Cells[2] + " " + a.PartName
			}
			d.add(mark{Kind: "rect", Class: "hit", X: x1, Y: d.top, W: max(x2-x1, .1), H: d.bottom - d.top, Tip: tip})
		}
	})
}
