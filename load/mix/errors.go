package mix

import (
	"fmt"
	"strings"
)

// An Error says what is wrong with the file of a mix, where, and what to do.
type Error struct {
	File         string
	Line, Column int    // from 1, in characters; 0 for the whole file
	Message      string // what is wrong
	Hint         string // what to do; may be empty
	Source       string // the offending line as it stands in the file
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

// Excerpt returns the offending line with a caret below the column, "" if there is no line. It
// shortens long lines.
func (e *Error) Excerpt() string {
	if e.Source == "" {
		return ""
	}
	const width = 160
	source := []rune(e.Source)
	column := min(max(e.Column-1, 0), len(source))
	if from := max(column-width/2, 0); len(source) > width {
		source, column = source[from:min(from+width, len(source))], column-from
	}
	pad := make([]rune, column)
	for i := range pad {
		if pad[i] = ' '; source[i] == '\t' {
			pad[i] = '\t'
		}
	}
	return string(source) + "\n" + string(pad) + "^"
}

// Errors are the errors in a file, in the order of its lines. If there are too many, only the first
// are kept, and the last one says so.
type Errors []*Error

// Error returns the errors, one per line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single errors.
func (es Errors) Unwrap() []error {
	list := make([]error, len(es))
	for i, e := range es {
		list[i] = e
	}
	return list
}
