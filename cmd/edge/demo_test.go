package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// The demonstration refuses the clients that guess passwords, and nobody else. If the machine is too busy to refuse
// anyone within the time of the test, the test tries again.
func TestDemo(t *testing.T) {
	t.Parallel()
	guessed := regexp.MustCompile(`guessers +\d+, +[1-9]\d* refused`)
	for range 5 {
		p := start(t, t.TempDir(), "pop", "--demo=10s", "--listen=127.0.0.1:0")
		if code := p.End(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		out := p.Stdout.String()
		for _, want := range []string{`requests to 3 nodes`, `readers +[1-9]\d*, +0 refused`, `regulars +[1-9]\d*, +0 refused`, `innocent +0 requests`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("output does not match %q:\n%s", want, out)
			}
		}
		if !guessed.MatchString(out) {
			continue
		}
		if !strings.Contains(p.Stderr.String(), `msg="mitigation started"`) {
			t.Errorf("no mitigation was logged:\n%s", p.Stderr)
		}
		return
	}
	t.Error("the demonstration never refuses the guessers")
}

// A demonstration begins so that no minute ends during it, if it is short enough.
func TestDemoStaysWithinMinute(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		at           string
		length, want time.Duration
	}{
		{"12:00:00", 20 * time.Second, 0},
		{"12:00:39", 20 * time.Second, 0},
		{"12:00:39.5", 20 * time.Second, 20500 * time.Millisecond},
		{"12:00:59.9", 20 * time.Second, 100 * time.Millisecond},
		{"12:00:30", 59 * time.Second, 30 * time.Second},
		{"12:00:30", time.Minute, 0},
		{"12:00:30", time.Hour, 0},
	} {
		now, err := time.Parse("15:04:05", row.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := (demonstration{length: row.length}).delay(now); got != row.want {
			t.Errorf("at %s, a demonstration of %v waits %v, want %v", row.at, row.length, got, row.want)
		}
	}
}
