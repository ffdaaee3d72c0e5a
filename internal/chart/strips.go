package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Strips are rows of events over time, such as clients with their requests.
type Strips struct {
	Title, Note string
	What        string // what the rows are, client if empty
	PassedName  string // passed if empty
	From        time.Time
	Step        time.Duration
	Rows        []Strip
}

// A Strip is a row: counts for each step.
type Strip struct {
	Name            string
	Passed, Refused []uint64
	Held            []bool // mitigated, regardless of requests; nil if not applicable
	Note            string
}

func (s Strips) view() view {
	passed := cmp.Or(s.PassedName, "passed")
	p := plot{Title: s.Title, Note: s.Note, listed: true, Keys: []key{{passed, "s0"}, {"refused", "refused"}},
		Data: Table{Title: s.Title, Columns: Columns(cmp.Or(s.What, "client"), passed, "refused")}}
	if slices.ContainsFunc(s.Rows, func(r Strip) bool { return r.Held != nil }) {
		p.Keys = append(p.Keys, key{"mitigated, no requests", "held"})
	}
	p.Data.Columns[0].Sent = true
	steps, most := 0, uint64(1)
	for _, r := range s.Rows {
		var sum, refused uint64
		for i := range r.Passed {
			sum, refused, most = sum+r.Passed[i], refused+r.Refused[i], max(most, r.Passed[i]+r.Refused[i])
		}
		steps = max(steps, len(r.Passed))
		p.Data.Rows = append(p.Data.Rows, Row{Cells: []string{r.Name, Grouped(sum), Grouped(refused)}, Note: r.Note})
	}
	if steps < 2 {
		return view{}
	}
	from := s.From.Unix()
	to := from + int64(s.Step/time.Second)*int64(steps)
	time := overTime(from, to)
	return drawn(p, func(d *drawing) {
		const row, high = 22.0, 15.0
		names := 0.0
		for _, r := range s.Rows {
			names = max(names, widthOf(r.Name, ""))
		}
		d.left, d.right, d.top = min(names, d.Width*.3)+10, d.Width-16, 4
		d.bottom = d.top + row*float64(len(s.Rows))
		d.Height = d.bottom + 24
		d.across(time, 16)
		cell := (d.right - d.left) / float64(steps)
		for i, r := range s.Rows {
			y := d.top + row*float64(i)
			d.text("label", "end", d.left-8, y+12, shortened(r.Name, d.left-10))
			paths := map[string]*strings.Builder{}
			var order []string
			rect := func(class string, k int, y1, y2 float64) {
				if paths[class] == nil {
					paths[class], order = &strings.Builder{}, append(order, class)
				}
				x1, x2 := d.left+cell*float64(k), d.left+cell*float64(k+1)+.2
				fmt.Fprint(paths[class], trace([]point{{x1, y1}, {x2, y1}, {x2, y2}, {x1, y2}}), "Z")
			}
			d.add(mark{Kind: "rect", Class: "empty", X: d.left, Y: y, W: d.right - d.left, H: high})
			for k := range r.Passed {
				switch all := r.Passed[k] + r.Refused[k]; {
				case all > 0:
					// The more requests, the stronger the color. Refused ones are at the top.
					level := 3 * math.Log1p(float64(all)) / math.Log1p(float64(most))
					share := high * float64(r.Refused[k]) / float64(all)
					if r.Passed[k] > 0 {
						share = min(share, high-3)
						rect(fmt.Sprintf("s0 cell q%d", min(int(level), 2)), k, y+share, y+high)
					}
					if r.Refused[k] > 0 {
						rect(fmt.Sprintf("refused cell q%d", min(int(level), 2)), k, y, y+max(share, 3))
					}
				case k < len(r.Held) && r.Held[k]:
					rect("held cell", k, y, y+high)
				}
			}
			for _, class := range order {
				d.path(class, paths[class].String())
			}
			d.add(mark{Kind: "rect", Class: "hit", Y: y - 3, W: d.Width, H: row, Tip: strings.TrimSpace(r.Name + "\n" +
				p.Data.Rows[i].Cells[1] + " " + passed + ", " + p.Data.Rows[i].Cells[2] + " refused\n" + r.Note)})
		}
	})
}
