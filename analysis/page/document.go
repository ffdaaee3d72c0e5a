// Package page holds reports as documents, and renders them: as text for terminals, as Markdown,
// as JSON, and as one HTML file with plots that needs no network, no other file and no script.
// Whatever stands in a document is shown as it is: none of it is taken for a control sequence,
// for Markdown or for HTML.
package page

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

// A Document is a report.
type Document struct {
	Title    string
	Lead     string // in a sentence what it is about
	Run      Run
	Sections []Section

	// Data is what JSON holds: a struct with all numbers of the document.
	Data any
}

// A Run says what made a document.
type Run struct {
	Input   string    `json:"-"` // what was read, or asked: files and formats, targets
	Command string    `json:"command,omitempty"`
	Version string    `json:"version,omitempty"`
	Date    time.Time `json:"date,omitzero"`
	Log     any       `json:"log,omitempty"` // what was read of the log
}

// A Section is a part of a Document with a heading. Blocks with nothing in them are left out.
type Section struct {
	Title  string
	Blocks []Block
}

// A Block is a Paragraph, Facts, an Outcome, a Table, a Code or a plot.
type Block interface{ view() view }

// A view is what renderers see of a Block: one of these.
type view struct {
	Paragraph Paragraph
	Facts     Facts
	Outcome   *Outcome
	Table     *Table
	Code      *Code
	Plot      *plot
}

// A Paragraph is prose.
type Paragraph string

// Facts are what people look for first.
type Facts []Fact

// Columns is in how many columns they stand on a wide screen, so that the last row is nearly full.
func (f Facts) Columns() int {
	rows := max(1, (len(f)+4)/5)
	return (len(f) + rows - 1) / rows
}

// A Fact is a number, or a word in the place of one.
type Fact struct {
	Name, Value string
	Note        string // may be empty
}

// An Outcome says whether a check has passed.
type Outcome struct {
	OK   bool
	Text string
}

// A Code is text to be copied.
type Code struct {
	Title, Text string
}

// A Table is rows of texts.
type Table struct {
	Title   string
	Columns []Column
	Rows    []Row
}

// A Column is one of a Table.
type Column struct {
	Name    string
	Numbers bool // they are aligned on the right
	Sent    bool // anybody may have sent its texts, such as paths
}

// A Row has a text for each Column.
type Row struct {
	Cells  []string
	Note   string // stands behind it, such as recommended; may be empty
	Strong bool   // it stands out
}

func (p Paragraph) view() view { return view{Paragraph: p} }
func (f Facts) view() view     { return view{Facts: f} }
func (o Outcome) view() view   { return view{Outcome: &o} }
func (c Code) view() view      { return view{Code: &c} }

func (t Table) view() view {
	if len(t.Rows) == 0 {
		return view{}
	}
	return view{Table: &t}
}

// Columns returns columns for a Table: the first for texts, all others for numbers.
func Columns(first string, numbers ...string) []Column {
	columns := []Column{{Name: first}}
	for _, name := range numbers {
		columns = append(columns, Column{Name: name, Numbers: true})
	}
	return columns
}

// Noted reports whether there is a row with a note.
func (t Table) Noted() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Note != "" })
}

// Class says how the ith column is set: n for numbers, t for short texts, that are not
// broken, w for others.
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

// A plot is a drawing, wide and narrow, and its data as a table.
type plot struct {
	Title, Note string
	Keys        []key
	Drawings    []*drawing
	Data        Table
	listed      bool // the table says as much: text shows it instead
}

// key explains a colour.
type key struct{ Name, Class string }

// widths are those of drawings: on a wide screen and on a telephone's.
var widths = []float64{960, 340}

// drawn returns a plot that draw draws at each width.
func drawn(p plot, draw func(d *drawing)) view {
	for i, w := range widths {
		d := &drawing{Width: w, Narrow: i > 0, Title: p.Title, Describe: p.Note}
		draw(d)
		p.Drawings = append(p.Drawings, d)
	}
	return view{Plot: &p}
}

// MarshalJSON returns one object: what made d, and the members of its data.
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

// plain is json.Marshal without escapes for HTML.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
