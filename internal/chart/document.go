// Package chart renders reports and their plots: as text for terminals, as Markdown, as JSON, and
// as a self-contained HTML file without scripts. A node's page uses the same blocks, by [HTML]. All
// text of a document is shown literally; none of it is interpreted as control sequences, Markdown
// or HTML.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edge/internal/prose"
)

// A Document is a report.
type Document struct {
	Title    string
	Lead     string // one-sentence summary
	Run      Run
	Sections []Section

	// Data is the JSON form: a struct with all numbers of the document.
	Data any
}

// A Run describes how a document was made.
type Run struct {
	Input   string    `json:"-"` // files and their formats, or targets
	Command string    `json:"command,omitempty"`
	Version string    `json:"version,omitempty"`
	Date    time.Time `json:"date,omitzero"`
	Log     any       `json:"log,omitempty"` // statistics of the log
}

// A Section is a part of a Document with a heading. Empty blocks are omitted.
type Section struct {
	Title  string
	Blocks []Block
}

// A Block is a Paragraph, Facts, a Check, a Table, a Code or a plot.
type Block interface{ view() view }

// A view is the renderers' view of a Block. One of its fields is set.
type view struct {
	Paragraph Paragraph
	Facts     Facts
	Check     *Check
	Table     *Table
	Code      *Code
	Plot      *plot
}

// A Paragraph is prose.
type Paragraph string

// Facts are the most important results.
type Facts []Fact

// Columns returns the number of columns on a wide screen, chosen so that the last row is nearly full.
func (f Facts) Columns() int {
	rows := max(1, (len(f)+4)/5)
	return (len(f) + rows - 1) / rows
}

// A Fact is a named number, or a word instead of one.
type Fact struct {
	Name, Value string
	Note        string // may be empty
}

// Add adds a number with a note.
func (f *Facts) Add(name string, n uint64, format string, args ...any) {
	*f = append(*f, Fact{name, Grouped(n), fmt.Sprintf(format, args...)})
}

// A Check reports whether a check has passed.
type Check struct {
	OK   bool
	Text string
}

// A Code is text to copy.
type Code struct {
	Title, Text string
}

// A Table is rows of texts, and in pages also of bars or drawings.
type Table struct {
	Title, Note string
	Columns     []Column
	Rows        []Row
	Keys        []Key         // of the parts of bars, or of the colors of drawings
	Foot        template.HTML // below the drawings
}

// A Column is one of a Table.
type Column struct {
	Name    string
	Numbers bool // aligned on the right
	Sent    bool // texts are untrusted, such as paths
}

// A Row has a text for each Column.
type Row struct {
	Cells   []string
	Note    string // shown after the cells, such as recommended; may be empty
	Strong  bool   // highlighted
	Bar     []uint64
	Drawing template.HTML
}

// A Key explains a color.
type Key struct {
	Name  string
	Color Color
}

// A Color is a class of style.css.
type Color string

const (
	Blue   Color = "s0"
	Orange Color = "s1"
	Red    Color = "refused" // only for refusals
)

func (p Paragraph) view() view { return view{Paragraph: p} }
func (f Facts) view() view     { return view{Facts: f} }
func (c Check) view() view     { return view{Check: &c} }
func (c Code) view() view      { return view{Code: &c} }

// view draws bars: the longest has the whole width.
func (t Table) view() view {
	sums := make([]uint64, len(t.Rows))
	for i, r := range t.Rows {
		for _, n := range r.Bar {
			sums[i] += n
		}
	}
	bars := slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Bar != nil })
	if len(t.Rows) == 0 || bars && slices.Max(sums) == 0 {
		return view{}
	}
	t.Rows = slices.Clone(t.Rows)
	for i, r := range t.Rows {
		var d drawing
		var end point
		for part, n := range r.Bar {
			from := end
			end.x += float64(n) / float64(slices.Max(sums))
			d.rect(string(t.Keys[part].Color)+" bar", from, point{end.x, 1}, Grouped(n)+" "+t.Keys[part].Name)
		}
		if r.Bar != nil {
			t.Rows[i].Drawing = `<svg class="row">` + d.Marks() + "</svg>"
		}
	}
	return view{Table: &t}
}

// Columns returns the columns of a Table: the first for texts, all others for numbers.
func Columns(first string, numbers ...string) []Column {
	columns := []Column{{Name: first}}
	for _, name := range numbers {
		columns = append(columns, Column{Name: name, Numbers: true})
	}
	return columns
}

// Add adds a row of strings and integers, which must not be negative, and returns it.
func (t *Table) Add(cells ...any) *Row {
	t.Rows = append(t.Rows, Row{Cells: prose.Texts(cells, func(cell any) string {
		if text, ok := cell.(string); ok {
			return text
		}
		return grouped(fmt.Sprint(cell))
	})})
	return &t.Rows[len(t.Rows)-1]
}

// Bars returns a table without rows for bars with these parts. Its columns are the first, one for each part, and the
// share.
func Bars(title, first string, parts ...Key) Table {
	names := prose.Texts(parts, func(k Key) string { return k.Name })
	t := Table{Title: title, Columns: Columns(first, append(names, "share")...), Keys: parts}
	t.Columns[0].Sent = true
	return t
}

// AddShare adds a row with a bar of n and its share of all, and returns it.
func (t *Table) AddShare(name string, n, all uint64) *Row {
	r := t.Add(name, n, Percent(n, all))
	r.Bar = []uint64{n}
	return r
}

// Noted reports whether any row has a note.
func (t Table) Noted() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Note != "" })
}

// Drawn reports whether rows have drawings.
func (t Table) Drawn() bool { return t.Rows[0].Drawing != "" }

// Class returns the class of the ith column: n for numbers, t for short texts, which are not
// wrapped, w for others.
func (t Table) Class(i int) string {
	if t.Columns[i].Numbers {
		return "n"
	}
	const wide = 28 // characters
	if slices.ContainsFunc(t.Rows, func(r Row) bool { return utf8.RuneCountInString(r.Cells[i]) > wide }) {
		return "w"
	}
	return "t"
}

// MarshalJSON returns one object with the members of d.Run and d.Data.
func (d Document) MarshalJSON() ([]byte, error) {
	run, err := plain(d.Run)
	if err != nil {
		return nil, err
	}
	data, err := plain(d.Data)
	switch {
	case err != nil || len(run) == len("{}"):
		return data, err
	case len(data) == len("{}"):
		return run, nil
	}
	return slices.Concat(run[:len(run)-1], []byte(","), data[1:]), nil
}

// plain is json.Marshal without HTML escaping.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
