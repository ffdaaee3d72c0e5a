package chart

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"
)

//go:embed page.html
var source string

// Style is the style sheet of pages, light and dark.
//
//go:embed style.css
var Style string

var tree = template.Must(template.New("page").Funcs(template.FuncMap{
	"view":  func(b Block) view { return b.view() },
	"date":  func(r Run) string { return r.Date.Format("2 January 2006, 15:04 MST") },
	"style": func() template.CSS { return template.CSS(Style) },
}).Parse(source))

// HTML returns one block as a part of a page that has Style. The result is empty if the block is.
func HTML(b Block) template.HTML {
	var out strings.Builder
	if err := tree.ExecuteTemplate(&out, "block", b); err != nil {
		panic("chart: " + err.Error()) // the template is tested with each kind of block
	}
	return template.HTML(Visible(out.String()))
}

// WriteHTML writes d as one HTML file, which is also well-formed XML.
func (d Document) WriteHTML(w io.Writer) error {
	var b bytes.Buffer
	if err := tree.Execute(&b, d); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	_, err := io.WriteString(w, Visible(b.String()))
	return err
}

// Visible returns untrusted text for a page without the characters that [prose.Printable] makes visible. Each is
// replaced by one character, because labels have been placed already.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
