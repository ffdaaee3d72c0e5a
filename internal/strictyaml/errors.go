package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
)

// An Error says what is wrong with a file, where, and what to do.
type Error struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 if the error is about the whole file
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Message string `json:"message"`          // what is wrong
	Hint    string `json:"hint,omitempty"`   // what to do
	Source  string `json:"-"`                // the offending line of the file
}

// Error returns the error in one line, beginning with file:line:column.
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	s += ": " + e.Message
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Excerpt returns the offending line and, below it, a caret at the column. It shortens long lines to the
// text around the column. It returns "" if there is no such line.
func (e *Error) Excerpt() string {
	if e.Source == "" {
		return ""
	}
	const width = 160
	source := []rune(e.Source)
	column := min(max(e.Column-1, 0), len(source))
	if len(source) > width {
		from := min(max(column-width/2, 0), len(source)-width)
		to := from + width
		before, after := from > 0, to < len(source)
		source, column = source[from:to], column-from
		if before {
			source[0] = '…'
		}
		if after {
			source[width-1] = '…'
		}
	}
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(source[:column]))
	return string(source) + "\n" + pad + "^"
}

// Errors are the errors in some files, in the order of the files and of their lines. After the first
// [MaxErrors], one more error says that the rest are not shown.
type Errors []*Error

// Error returns the errors, one per line.
func (es Errors) Error() string {
	return strings.Join(prose.Texts(es, (*Error).Error), "\n")
}

// Unwrap returns the elements of es.
func (es Errors) Unwrap() []error {
	list := make([]error, len(es))
	for i, e := range es {
		list[i] = e
	}
	return list
}

// A Source is the text of a file.
type Source struct {
	Name  string
	Bytes []byte
}

// Report returns the first [MaxErrors] of es by file, line and column, without duplicates, and sets
// their Source. files are all files that es are about.
func (es Errors) Report(files ...Source) Errors {
	order, texts := map[string]int{}, map[string][]byte{}
	for i, f := range files {
		order[f.Name], texts[f.Name] = i, f.Bytes
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	es = slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
	if len(es) > MaxErrors {
		last := es[MaxErrors-1]
		es = append(es[:MaxErrors], &Error{File: last.File, Message: "too many errors; the rest are not shown"})
	}
	for _, e := range es {
		if e.Line > 0 {
			e.Source = lineOf(texts[e.File], e.Line)
		}
	}
	return es
}
