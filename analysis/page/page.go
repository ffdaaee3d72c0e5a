// Package page writes reports as one HTML file with plots, that needs no network and
// no other file: people open it, send it, print it.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Page is a report. All its texts are shown as they are: nothing in them is taken for
// HTML, and what cannot be printed is replaced.
type Page struct {
	Title    string
	Subtitle string // what it is about: files, times
	Sections []Section
}

// A Section is a part of a Page with a heading. What is empty is left out.
type Section struct {
	Title   string
	Lead    string
	Figures []Figure
	Blocks  []Block
}

// A Figure is a number that people look for first.
type Figure struct {
	Name, Value string
	Note        string // may be empty
}

// A Block is an Area, a Curve, a Scatter, Bars, a Table or a Code.
type Block interface{ view() view }

// A view is what the template shows of a Block: one of these.
type view struct {
	Chart *drawing
	Table *Table
	Code  *Code
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
}

// A Row has a text for each Column.
type Row struct {
	Cells  []string
	Note   string // stands behind it, such as recommended; may be empty
	Strong bool   // it stands out
}

func (t Table) view() view { return view{Table: &t} }

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

// A Code is text to be copied.
type Code struct {
	Title, Text string
}

func (c Code) view() view { return view{Code: &c} }

//go:embed page.html
var source string

var tree = template.Must(template.New("page").Funcs(template.FuncMap{
	"view": func(b Block) view { return b.view() },
}).Parse(source))

// Write writes p. It is well-formed XML too.
func Write(w io.Writer, p Page) error {
	var b bytes.Buffer
	if err := tree.Execute(&b, p); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	// No log puts control characters, or what turns the direction of writing, into it.
	_, err := io.WriteString(w, strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b.String()))
	return err
}
