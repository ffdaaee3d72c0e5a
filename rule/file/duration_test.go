package file_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "0d0h": 0, "1s": time.Second, "90s": 90 * time.Second, "1m30s": 90 * time.Second,
		"1h": time.Hour, "7d": 168 * time.Hour, "1d1s": 24*time.Hour + time.Second, "36h": 36 * time.Hour, "10000d": 240000 * time.Hour,
	} {
		got, err := prose.ParseDuration(text, time.Second)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := prose.ParseDuration(rule.FormatDuration(want), time.Second); err != nil || again != want {
			t.Errorf("ParseDuration(FormatDuration(%v) = %q) = %v, %v", want, rule.FormatDuration(want), again, err)
		}
	}
	for _, text := range []string{"", "1", "00", "s", "1x", "1.5s", "-1s", "+1s", " 1s", "1s ", "1 s", "1s1m", "1m1m", "01s", "500ms", "1µs", "10001d", "99999999999999999999s"} {
		if got, err := prose.ParseDuration(text, time.Second); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
	for text, want := range map[string]time.Duration{
		"0": 0, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond, "1.5s": 1500 * time.Millisecond,
		"01m": time.Minute, "1m1m": 2 * time.Minute, "1µs": time.Microsecond, "-1s": -time.Second,
	} {
		if got, err := prose.ParseDuration(text, 0); err != nil || got != want {
			t.Errorf("ParseDuration(%q, 0) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "1x", "1.5d", "-1d", "10001d", "1s1d", "99999999999999999999s"} {
		if got, err := prose.ParseDuration(text, 0); err == nil {
			t.Errorf("ParseDuration(%q, 0) = %v, want an error", text, got)
		}
	}
	if got := rule.FormatDuration(90*time.Minute + time.Second + time.Millisecond); got != "1h30m1s" {
		t.Errorf("FormatDuration(1h30m1.001s) = %q, want 1h30m1s", got)
	}
}
