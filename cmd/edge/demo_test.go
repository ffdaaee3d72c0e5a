package main

import (
	"regexp"
	"strings"
	"testing"
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
