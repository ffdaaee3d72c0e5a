package rule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// parse returns the set of a valid file.
func parse(t failer, text string) *rule.Set {
	t.Helper()
	set, err := rulefile.Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse(%q) = %v", text, err)
	}
	return set
}

// load returns the set of rules.yaml, which names the other files.
func load(t testing.TB, files map[string]string) *rule.Set {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// withKeys returns a file with a rule that has more keys, one per line.
func withKeys(lines ...string) string {
	return "rules:\n- id: a\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n  " + strings.Join(lines, "\n  ") + "\n"
}

// withCharacteristics returns a file with a rule that has the given characteristics.
func withCharacteristics(characteristics string) string {
	return "rules:\n- id: a\n  characteristics: " + characteristics + "\n  limits: [{threshold: 5, period: 1m}]\n"
}
