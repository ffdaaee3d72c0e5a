package analysis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/page"
)

// codeSpan returns text that anybody may have sent as code in a cell of a table. A bar would
// end the cell, and a backtick the code. A backslash in front of the bar would undo the one
// that is put there: where there are bars, backslashes are doubled.
func codeSpan(text string) string {
	text = printable(text)
	if strings.Contains(text, "|") {
		text = strings.NewReplacer(`\`, `\\`, "|", `\|`).Replace(text)
	}
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "`", "'") + "`"
}

// printable returns text that anybody may have sent so that a terminal shows it and does
// nothing else.
func printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == '\ufffd' {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

// clock writes a moment of a log.
func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }

// between says what time a log covers.
func between(from, to time.Time) string {
	if from.Equal(to) {
		return " at " + clock(from) + " (UTC)"
	}
	return fmt.Sprintf(" from %s to %s (UTC)", clock(from), clock(to))
}

// lasting returns a number of seconds as people write it, to the millisecond.
func lasting(s float64) string {
	return page.Span(time.Duration(s * float64(time.Second)).Round(time.Millisecond))
}
