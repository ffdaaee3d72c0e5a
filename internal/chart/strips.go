package chart

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"time"
)

// Strips are rows of events over time, such as clients with their requests.
type Strips struct {
	Title, Note string
	What        string // what the rows are, such as client
	PassedName  string // such as passed
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
	t := Table{Title: s.Title, Note: s.Note, Columns: Columns(s.What, s.PassedName, "refused"),
		Keys: []Key{{s.PassedName, Blue}, {"refused", Red}}}
	t.Columns[0].Sent = true
	steps, most := 0, uint64(1)
	for _, r := range s.Rows {
		steps = max(steps, len(r.Passed))
		for i := range r.Passed {
			most = max(most, r.Passed[i]+r.Refused[i])
		}
	}
	if steps < 2 {
		return view{}
	}
	held := false
	for _, r := range s.Rows {
		sum, refused := uint64(0), uint64(0)
		paths := map[string]string{} // by class
		// Cells overlap a little, so that no seams are visible.
		cell := func(class string, k int, from, to float64) {
			paths[class] += fmt.Sprintf("M%d %vh1.1v%vh-1.1z", k, hundredth(from), hundredth(to-from))
		}
		for k := range r.Passed {
			sum, refused = sum+r.Passed[k], refused+r.Refused[k]
			switch all := r.Passed[k] + r.Refused[k]; {
			case all > 0:
				// The more requests, the stronger the color. Refused ones are at the top.
				level := min(2, int(3*math.Log1p(float64(all))/math.Log1p(float64(most))))
				share := float64(r.Refused[k]) / float64(all)
				if r.Passed[k] > 0 {
					share = min(share, .8)
					cell(fmt.Sprintf("s0 cell q%d", level), k, share, 1)
				}
				if r.Refused[k] > 0 {
					cell(fmt.Sprintf("refused cell q%d", level), k, 0, max(share, .2))
				}
			case k < len(r.Held) && r.Held[k]:
				cell("held cell", k, 0, 1)
			}
		}
		held = held || r.Held != nil
		row := t.Add(r.Name, sum, refused)
		row.Note = r.Note
		row.Drawing = template.HTML(fmt.Sprintf(`<svg class="row" viewBox="0 0 %d 1" preserveAspectRatio="none">`, steps))
		for _, class := range slices.Sorted(maps.Keys(paths)) {
			row.Drawing += template.HTML(fmt.Sprintf(`<path class="%s" d="%s"/>`, class, paths[class]))
		}
		row.Drawing += "</svg>"
	}
	if held {
		t.Keys = append(t.Keys, Key{"mitigated, no requests", "held"})
	}
	from := s.From.Unix()
	var d drawing
	d.across(overTime(from, from+int64(s.Step/time.Second)*int64(steps)), 1)
	t.Foot = `<svg class="times">` + d.Marks() + "</svg>"
	return view{Table: &t}
}
