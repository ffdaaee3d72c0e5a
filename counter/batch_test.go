package counter_test

import (
	"testing"

	"github.com/edgelimit/edge/counter"
)

// A number that has become shorter is padded.
func TestParseValue(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "42": 42, "9                   ": 9, "18446744073709551615": 1<<64 - 1} {
		if got, ok := counter.ParseValue([]byte(text)); !ok || got != want {
			t.Errorf("ParseValue(%q) = %d, %t, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", " ", "-1", "1 2", "0x1", "18446744073709551616", "poison"} {
		if got, ok := counter.ParseValue([]byte(text)); ok {
			t.Errorf("ParseValue(%q) = %d, want an error", text, got)
		}
	}
}
