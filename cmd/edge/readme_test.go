package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/load"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of a page in a language.
func blocks(t *testing.T, page, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// docs/rules.md contains testdata/rules.yaml and its test cases verbatim, and begins with the README's rules, which are
// valid.
func TestReadmeConfiguration(t *testing.T) {
	t.Parallel()
	page := blocks(t, "../../docs/rules.md", "yaml")
	for _, name := range []string{"rules.yaml", "cases.yaml"} {
		text, err := os.ReadFile("../../testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(page, string(text)) {
			t.Errorf("docs/rules.md does not contain testdata/%s", name)
		}
	}
	if err := checkTests(io.Discard, []string{"../../testdata/cases.yaml"}, nil, false); err != nil {
		t.Error(err)
	}
	short := blocks(t, "../../README.md", "yaml")[0]
	if page[0] != short {
		t.Errorf("docs/rules.md begins with\n%s\nand the README shows\n%s", page[0], short)
	}
	if _, err := rulefile.Parse("README.md", []byte(short)); err != nil {
		t.Error(err)
	}
}

// The README's edge load commands work in order: only attacks are refused, and all of them.
func TestReadmeLoad(t *testing.T) {
	harness.Installed(t, "bash")
	var script string
	for _, block := range blocks(t, "../../README.md", "sh") {
		if strings.Contains(block, "edge load --mix") {
			script = block
		}
	}
	free := harness.ReservePort(t)
	script = strings.NewReplacer("http://127.0.0.1:8080", "--json --lag 1m --timeout 1m http://"+free, "p99_ms > 20", "p99_ms > 60000").Replace(script)
	// On a busy machine the PoP may start later than the load expects.
	listens := " >pop.log 2>&1 &\nuntil (: </dev/tcp/" + strings.Replace(free, ":", "/", 1) + ") 2>/dev/null; do sleep 0.1; done"
	p := startCommand(t, t.TempDir(), []string{"EDGE_LISTEN=" + free}, "bash", "-c", "set -e\ntrap 'kill $!; wait' EXIT\n"+strings.ReplaceAll(script, " &", listens))
	if code := p.End(); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, p.Stdout, p.Stderr)
	}
	var r load.Report
	if err := json.Unmarshal([]byte(p.Stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	// If answers are that slow, so is counting, and an attack may be over before it is noticed.
	busy := r.Service.MaxMS > 100
	for _, c := range r.Components {
		attacks := slices.Contains([]string{"scraper", "edges", "guessers"}, c.Name)
		if c.Requests == 0 || c.Failed > 0 || c.Refused > 0 && !attacks || c.Refused == 0 && attacks && !busy {
			t.Errorf("%s: %d requests, %d refused, %d failed", c.Name, c.Requests, c.Refused, c.Failed)
		}
	}
	if s := r.Score; s == nil || s.InnocentRefused > 0 || len(s.Faults) > 0 {
		t.Errorf("score %+v, want no innocent client refused and no fault", s)
	}
}

func TestReadmeLength(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(readme(t), "\n"); lines > 200 {
		t.Errorf("the README has %d lines, want at most 200", lines)
	}
}
