package chart

import (
	"fmt"
	"strings"
)

// Bars are rows with a bar of one or more parts each, such as sources with their refusals.
// A single row is shown as a table if Listed is set, and otherwise omitted.
type Bars struct {
	Title, Note string
	What        string   // what the rows are, such as client
	Parts       []string // names of the parts
	Refusals    bool     // the first part has the color of refusals
	Listed      bool     // text output has a table
	Rows        []Bar
}

// A Bar is a row.
type Bar struct {
	Name   string
	Values []uint64 // one for each part
	Share  string   // shown after the bar
	Note   string   // in the table
}

// Add adds a row with n of all.
func (b *Bars) Add(name string, n, all uint64, note string) {
	b.Rows = append(b.Rows, Bar{Name: name, Values: []uint64{n}, Share: Percent(n, all), Note: note})
}

func (b Bars) view() view {
	p := plot{Title: b.Title, Note: b.Note, Data: Table{Title: b.Title, Columns: Columns(b.What, b.Parts...)},
		listed: b.Listed}
	p.Data.Columns = append(p.Data.Columns, Column{Name: "share", Numbers: true})
	p.Data.Columns[0].Sent = true
	var sums []uint64
	most := uint64(0)
	for _, r := range b.Rows {
		cells, sum := []string{r.Name}, uint64(0)
		for _, v := range r.Values {
			cells, sum = append(cells, Grouped(v)), sum+v
		}
		p.Data.Rows = append(p.Data.Rows, Row{Cells: append(cells, r.Share), Note: r.Note})
		sums, most = append(sums, sum), max(most, sum)
	}
	switch {
	case most == 0 || len(b.Rows) == 1 && !b.Listed:
		return view{}
	case len(b.Rows) == 1:
		return view{Table: &p.Data}
	}
	class := func(part int) string {
		if part == 0 && b.Refusals {
			return "refused"
		}
		return fmt.Sprintf("s%d", part%colors)
	}
	if len(b.Parts) > 1 {
		for i, name := range b.Parts {
			p.Keys = append(p.Keys, key{name, class(i)})
		}
	}
	return drawn(p, func(d *drawing) {
		row, names, notes := 26.0, 0.0, 0.0
		for i, r := range b.Rows {
			names, notes = max(names, widthOf(r.Name, "")), max(notes, widthOf(b.behind(r, sums[i]), ""))
		}
		left, top := min(names, d.Width*.36)+12, 4.0
		if d.Narrow { // the name is above its bar
			row, left, top = 40, 0, 18
		}
		d.Height = row*float64(len(b.Rows)) + 4
		room := d.Width - left - notes - 12
		for i, r := range b.Rows {
			at, x := row*float64(i)+top, left
			for part, v := range r.Values {
				if v > 0 {
					w := max(float64(v)/float64(most)*room, 1)
					d.add(mark{Kind: "rect", Class: class(part) + " bar", X: x, Y: at, W: w, H: 18, R: 2})
					x += w
				}
			}
			if d.Narrow {
				d.text("label", "start", 0, at-5, shortened(r.Name, d.Width))
			} else {
				d.text("label", "end", left-12, at+13.5, shortened(r.Name, left-12))
			}
			d.text("tick", "start", x+8, at+13.5, b.behind(r, sums[i]))
			d.add(mark{Kind: "rect", Class: "hit", Y: row * float64(i), W: d.Width, H: row,
				Tip: strings.Join(append(p.Data.Rows[i].Cells, r.Note), " ")})
		}
		d.line("axis", left, 0, left, d.Height)
	})
}

// behind returns the text after a bar.
func (b Bars) behind(r Bar, sum uint64) string {
	return Grouped(sum) + When(r.Share != "", " (%s)", r.Share)
}
