package chart

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/edgelimit/edge/internal/prose"
)

const (
	textWidth = 96 // width of paragraphs, in columns
	cellWidth = 60 // maximum width of a cell, in characters
)

// WriteText writes d for a terminal. Plots are omitted.
func (d Document) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, line := range []string{d.Run.Input, d.Lead} {
		if line != "" {
			b.WriteString(prose.Printable(line) + "\n")
		}
	}
	for _, s := range d.Sections {
		b.WriteString("\n" + prose.Printable(s.Title) + "\n")
		table := false // whether the previous block is a table
		for _, block := range s.Blocks {
			v := block.view()
			said := v.Paragraph != "" || v.Facts != nil || v.Check != nil
			if v.Table != nil || v.Code != nil || table && said {
				b.WriteByte('\n')
			}
			table = v.Table != nil || table && !said
			if v.Table != nil && v.Table.Title != "" {
				b.WriteString("  " + prose.Printable(v.Table.Title) + "\n")
			}
			switch {
			case v.Paragraph != "":
				for _, line := range prose.Wrapped(prose.Printable(string(v.Paragraph)), textWidth) {
					b.WriteString("  " + line + "\n")
				}
			case v.Check != nil:
				b.WriteString("  " + prose.Printable(v.Check.Text) + "\n")
			case v.Facts != nil:
				v.Facts.table(false).text(&b)
			case v.Code != nil:
				b.WriteString("# " + v.Code.Title + "\n" + v.Code.Text)
			case v.Table != nil:
				v.Table.text(&b)
			}
		}
	}
	_, err := io.WriteString(w, strings.TrimLeft(b.String(), "\n"))
	return err
}

// table returns f as a table. numbers is set if values are aligned as numbers.
func (f Facts) table(numbers bool) Table {
	t := Table{Columns: []Column{{}, {Numbers: numbers}, {}}}
	for _, fact := range f {
		t.Rows = append(t.Rows, Row{Cells: []string{fact.Name, fact.Value, fact.Note}})
	}
	return t
}

// cells returns the names of the columns, and then the texts and the note of each row. It formats untrusted text with
// sent, and other text with own.
func (t Table) cells(own, sent func(string) string) [][]string {
	head := prose.Texts(t.Columns, func(c Column) string { return own(c.Name) })
	rows := [][]string{append(head, "")}
	for _, r := range t.Rows {
		var cells []string
		for i, cell := range r.Cells {
			format := own
			if t.Columns[i].Sent {
				format = sent
			}
			cells = append(cells, format(cell))
		}
		rows = append(rows, append(cells, own(r.Note)))
	}
	return rows
}

// text writes t in aligned columns. If no column has a name, there is no header row.
func (t Table) text(b *strings.Builder) {
	printable := func(text string) string { return prose.Printable(text) }
	rows := t.cells(printable, func(text string) string {
		letters := []rune(prose.Printable(text))
		if len(letters) > cellWidth {
			letters = append(letters[:cellWidth-1], '…')
		}
		return string(letters)
	})
	if strings.Join(rows[0], "") == "" {
		rows = rows[1:]
	}
	wide := make([]int, len(t.Columns)+1)
	for _, r := range rows {
		for i, cell := range r {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			room := strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell))
			if i < len(t.Columns) && t.Columns[i].Numbers {
				cell, room = room+cell, ""
			}
			line += "  " + cell + room
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// WriteMarkdown writes d as Markdown, such as for a pull request. All sections but the first are
// collapsed.
func (d Document) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n", escaped(d.Title))
	for _, line := range []string{d.Run.Input, d.Lead} {
		if line != "" {
			b.WriteString("\n" + escaped(line) + "\n")
		}
	}
	for i, s := range d.Sections {
		if i > 0 {
			fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n", escaped(s.Title))
		}
		for _, block := range s.Blocks {
			v := block.view()
			switch {
			case v.Paragraph != "":
				b.WriteString("\n" + escaped(string(v.Paragraph)) + "\n")
			case v.Check != nil:
				mark := ":x:"
				if v.Check.OK {
					mark = ":white_check_mark:"
				}
				fmt.Fprintf(&b, "\n%s **%s**\n", mark, escaped(v.Check.Text))
			case v.Facts != nil:
				v.Facts.table(true).markdown(&b)
			case v.Code != nil:
				fence := "```"
				for strings.Contains(v.Code.Text, fence) {
					fence += "`"
				}
				fmt.Fprintf(&b, "\n%s:\n\n%ssh\n%s%s\n", escaped(v.Code.Title), fence, v.Code.Text, fence)
			case v.Table != nil:
				v.Table.markdown(&b)
			}
		}
		if i > 0 {
			b.WriteString("\n</details>\n")
		}
	}
	if d.Run.Command != "" {
		fmt.Fprintf(&b, "\n%s, edge %s, %s\n", codeSpan(d.Run.Command), escaped(d.Run.Version),
			d.Run.Date.Format("2006-01-02 15:04 MST"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) markdown(b *strings.Builder) {
	if t.Title != "" {
		fmt.Fprintf(b, "\n**%s**\n", escaped(t.Title))
	}
	rule := prose.Texts(t.Columns, func(c Column) string {
		if c.Numbers {
			return "--:"
		}
		return "---"
	})
	if t.Noted() {
		rule = append(rule, "---")
	}
	b.WriteByte('\n')
	for _, cells := range slices.Insert(t.cells(escaped, codeSpan), 1, rule) {
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells[:len(rule)], " | "))
	}
}

// markdown escapes text for Markdown.
var markdown = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "<",
	"&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`)

func escaped(text string) string { return markdown.Replace(prose.Printable(text)) }

// codeSpan returns untrusted text as code in a cell of a table. A bar would end the cell, and a
// backtick the code. A backslash before a bar would undo the one that escapes it, so backslashes
// are doubled if there are bars.
func codeSpan(text string) string {
	text = prose.Printable(text)
	if strings.Contains(text, "|") {
		text = strings.NewReplacer(`\`, `\\`, "|", `\|`).Replace(text)
	}
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "`", "'") + "`"
}
