package lograte

import (
	"strings"
	"testing"
)

// A write has as many whole lines as a pipe takes at once.
func TestWholeLines(t *testing.T) {
	line := strings.Repeat("a", 999) + "\n"
	for _, test := range []struct {
		name, text string
		want       int
	}{
		{"one line", line, 1000},
		{"several lines", strings.Repeat(line, 4), 4000},
		{"too many lines", strings.Repeat(line, 5), 4000},
		{"a long line", strings.Repeat("a", 5000) + "\n" + line, 5001},
		{"no line", strings.Repeat("a", 5000), 5000},
	} {
		if got := wholeLines([]byte(test.text)); got != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.want)
		}
	}
}
