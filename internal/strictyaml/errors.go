package strictyaml

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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
	Name   string
	Bytes  []byte
	Fields []Field // the keys of the file, or nil if any may occur
}

// anyKey matches a key at the beginning of a line or within a mapping.
var anyKey = regexp.MustCompile(`(?:^|[{,])\s*["']?([\w-]+)["']?\s*:`)

// Lines returns the first n lines of the file, with control characters replaced. A line that may be a secret is empty:
// one that belongs to a secret key, or to a key that is unlike any of Fields. A line of at most 16 bytes that begins
// with such a key has no room for a secret.
func (s *Source) Lines(n int) []string {
	lines := strings.SplitN(strings.ReplaceAll(string(s.Bytes), "\r\n", "\n"), "\n", n+1)
	lines = lines[:min(n, len(lines))]
	hidden, outer := s.Fields != nil, math.MaxInt // outer is the indentation of the file's own keys
	for i, line := range lines {
		short, indent := false, len(line)-len(strings.TrimLeft(line, " {"))
		for _, key := range anyKey.FindAllStringSubmatchIndex(line, -1) {
			meant := prose.Guess(underscored(line[key[2]:key[3]]), prose.Texts(s.Fields, func(f Field) string { return f.Name }))
			at := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == meant })
			if key[2] <= indent+1 && indent <= outer { // a quote may precede the key
				hidden, short, outer = s.Fields != nil && at < 0, len(line) <= 16, indent
			}
			if at >= 0 && s.Fields[at].Secret {
				hidden, short = true, false
			}
		}
		lines[i] = strings.Map(func(r rune) rune {
			switch {
			case hidden && !short:
				return -1
			case unicode.IsControl(r) && r != '\t':
				return utf8.RuneError
			}
			return r
		}, line)
	}
	return lines
}

// Report returns the first [MaxErrors] of es by file, line and column, without duplicates, and sets
// their Source. files are all files that es are about.
func (es Errors) Report(files ...Source) Errors {
	order, lines := map[string]int{}, map[string][]string{}
	for i, f := range files {
		order[f.Name] = i
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	es = slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
	if len(es) > MaxErrors {
		last := es[MaxErrors-1]
		es = append(es[:MaxErrors], &Error{File: last.File, Message: "too many errors; the rest are not shown"})
	}
	for _, e := range slices.Backward(es) { // the first one of a file needs the most lines
		if at, ok := order[e.File]; ok && e.Line > 0 && lines[e.File] == nil {
			lines[e.File] = files[at].Lines(e.Line)
		}
		if e.Line > 0 && e.Line <= len(lines[e.File]) {
			e.Source = lines[e.File][e.Line-1]
		}
	}
	return es
}
