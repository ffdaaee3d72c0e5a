// Package complaint writes the errors of a command in lines that say where they are, what is wrong, and what to do.
package complaint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// A hintedError is an error with a hint.
type hintedError struct {
	error
	hint string
}

func (h hintedError) Hint() string { return h.hint }

// WithHint returns err with a hint, which replaces that of err.
func WithHint(err error, hint string) error { return hintedError{err, hint} }

// Write writes the errors in err, each once. Every line begins with the command's name, and hints are on separate
// lines. hint returns the hint of an error.
func Write(w io.Writer, err error, hint func(error) string) error {
	var b strings.Builder
	for _, e := range prose.SingleErrors(err) {
		advice := hint(e)
		if place := new(strictyaml.Error); errors.As(e, &place) {
			bare := *place
			bare.Hint = ""
			fmt.Fprintf(&b, "edge: %s\n", prose.Message(&bare))
			if excerpt := place.Excerpt(); excerpt != "" {
				fmt.Fprintln(&b, "    "+strings.ReplaceAll(excerpt, "\n", "\n    "))
			}
			advice = cmp.Or(place.Hint, advice)
		} else {
			fmt.Fprintf(&b, "edge: %s\n", prose.Message(e))
		}
		if advice != "" {
			fmt.Fprintf(&b, "edge: hint: %s\n", advice)
		}
	}
	_, err = io.WriteString(w, prose.Printable(b.String(), '\n', '\t'))
	return err
}
