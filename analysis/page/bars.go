package page

import (
	"fmt"
	"strings"
)

// Bars are rows with a bar of one or several parts each, such as sources with their
// refusals.
type Bars struct {
	Title, Note string
	Parts       []string // what they are called; one needs no name
	Refusals    bool     // the first part has the colour of what is refused
	Rows        []Bar
}

// A Bar is a row.
type Bar struct {
	Name   string
	Values []uint64 // one for each part
	Note   string   // behind the bar, such as its share
}

func (b Bars) view() view {
	const row, notes, longest = 26, 150, 44
	most, letters := uint64(0), 6
	for _, r := range b.Rows {
		letters = max(letters, min(len([]rune(r.Name)), longest))
		sum := uint64(0)
		for _, v := range r.Values {
			sum += v
		}
		most = max(most, sum)
	}
	if most == 0 {
		return view{}
	}
	d := newDrawing(b.Title, b.Note, float64(row*len(b.Rows)+4))
	class := func(part int) string {
		if part == 0 && b.Refusals {
			return "refused"
		}
		return fmt.Sprintf("s%d", part%colours)
	}
	if len(b.Parts) > 1 {
		for i, name := range b.Parts {
			d.Keys = append(d.Keys, key{name, class(i)})
		}
	}
	names := letter * float64(letters)
	left, room := names+12, width-names-12-notes
	d.line("axis", left, 0, left, d.Height)
	for i, r := range b.Rows {
		top := float64(row*i) + 4
		tip := []string{r.Name}
		x := left
		for part, v := range r.Values {
			w := float64(v) / float64(most) * room
			if name := b.name(part); v > 0 || len(b.Parts) > 1 {
				tip = append(tip, strings.TrimSpace(Grouped(v)+" "+name))
			}
			if v > 0 {
				d.add(mark{Kind: "rect", Class: class(part) + " bar", X: x, Y: top, W: max(w, 1), H: row - 8, R: 2})
				x += max(w, 1)
			}
		}
		all := strings.Join(append(tip, r.Note), "\n")
		name := []rune(r.Name)
		if len(name) > longest {
			name = append(name[:longest-1], '…')
		}
		d.text("label", "end", names, top+row/2+.5, string(name))
		d.text("tick", "start", x+8, top+row/2+.5, r.Note)
		d.add(mark{Kind: "rect", Class: "hit", X: 0, Y: top - 4, W: width, H: row, Tip: strings.TrimSpace(all)})
	}
	return view{Chart: d}
}

func (b Bars) name(part int) string {
	if part < len(b.Parts) {
		return b.Parts[part]
	}
	return ""
}
