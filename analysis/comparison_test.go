package analysis_test

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/golden"
)

// goldenJSON compares v with a file of testdata, because programs rely on its names.
func goldenJSON(t *testing.T, name string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", name), append(text, '\n'))
}

// compare returns the results of o for entries, whose times are relative to newYear.
func compare(t *testing.T, o analysis.ComparisonOptions, entries []accesslog.Entry) *analysis.Comparison {
	t.Helper()
	c, err := analysis.NewComparer(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		e.Time += newYear.UnixMicro()
		c.Add(&e)
	}
	return c.Report()
}

// story has a client that only the stricter rules refuse, one that both refuse, and one that only the old rules
// refuse, whose path must be escaped in print.
func story() []accesslog.Entry {
	entries := requestsOf("7", 12, 0, time.Second)
	entries = append(entries, requestsOf("8", 40, 20*time.Second, time.Millisecond)...)
	for _, e := range requestsOf("9", 9, 30*time.Second, time.Millisecond) {
		e.Path = "/old/|`\x1b[2J"
		entries = append(entries, e)
	}
	return entries
}

const (
	oldRules = `
rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 20, period: 1m}]}
  - {id: old, match: {paths: [/old/*]}, characteristics: [ip], limits: [{threshold: 4, period: 1m}]}
`
	newRules = `
rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}]}]
deny: [192.0.2.1]
`
)

// A comparison shows which clients one set of rules refuses and the other does not.
func TestComparison(t *testing.T) {
	most := uint64(10)
	got := compare(t, analysis.ComparisonOptions{Rules: parse(t, newRules), Base: parse(t, oldRules), MaxNewlyRefused: &most}, story())
	at := func(d time.Duration) *time.Time { when := newYear.Add(d); return &when }
	want := &analysis.Comparison{
		Requests: 61, Clients: 3, From: newYear, To: *at(30*time.Second + 8*time.Millisecond),
		PoP:     analysis.PoPReport{Nodes: 1, Shards: 1, Spread: "connection"},
		Refused: 1 + 29, BaseRefused: 19 + 4,
		NewlyRefused: analysis.Change{
			Requests: 1 + 10, Clients: 2, Only: 1, First: at(11 * time.Second),
			Rules: []analysis.RuleChange{{Rule: "all", Requests: 11}},
			TopClients: []analysis.TopClient{
				{Client: "8", Requests: 10, First: *at(20*time.Second + 11*time.Millisecond)},
				{Client: "7", Requests: 1, First: *at(11 * time.Second)},
			},
			TopPaths: []analysis.TopPath{{Path: "/8", Requests: 10}, {Path: "/7", Requests: 1}},
		},
		NewlyAllowed: analysis.Change{
			Requests: 4, Clients: 1, Only: 1, First: at(30*time.Second + 5*time.Millisecond),
			Rules:      []analysis.RuleChange{{Rule: "old", Requests: 4}},
			TopClients: []analysis.TopClient{{Client: "9", Requests: 4, First: *at(30*time.Second + 5*time.Millisecond)}},
			TopPaths:   []analysis.TopPath{{Path: "/old/|`\x1b[2J", Requests: 4}},
		},
		MaxNewlyRefused: &most,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if err := got.Check(); err == nil {
		t.Error("11 requests newly refused with a maximum of 10: no error")
	}
	most = 11
	if err := got.Check(); err != nil {
		t.Errorf("11 requests newly refused with a maximum of 11: %v", err)
	}
	same := compare(t, analysis.ComparisonOptions{Rules: parse(t, oldRules), Base: parse(t, oldRules)}, story())
	if same.NewlyRefused.Requests != 0 || same.NewlyAllowed.Requests != 0 || same.Refused != 23 || same.Check() != nil {
		t.Errorf("equal rules decide differently: %+v", same)
	}
}

// Reports are readable. No client can inject anything into the terminal or the page.
func TestComparisonTexts(t *testing.T) {
	most := uint64(10)
	r := compare(t, analysis.ComparisonOptions{Rules: parse(t, newRules), Base: parse(t, oldRules), MaxNewlyRefused: &most, ReportOptions: analysis.ReportOptions{Top: 2}}, story())
	var text, markdown bytes.Buffer
	if err := r.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.Document().WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/comparison.txt", text.Bytes())
	r.PoP.Nodes = 3
	for name, write := range map[string]func(io.Writer) error{"text": r.Document().WriteText, "Markdown": r.Document().WriteMarkdown} {
		var b strings.Builder
		if err := write(&b); err != nil || !strings.Contains(b.String(), "PoP: 3 nodes, 1 shard") {
			t.Errorf("the %s does not describe the PoP: error %v\n%s", name, err, b.String())
		}
	}
	r.PoP.Nodes = 1
	golden.Check(t, "testdata/comparison.md", markdown.Bytes())
	goldenJSON(t, "comparison.json", r)
	for _, b := range append(text.Bytes(), markdown.Bytes()...) {
		if b < ' ' && b != '\n' {
			t.Fatalf("byte %q is not escaped", b)
		}
	}
}

func TestEnforcementText(t *testing.T) {
	e := enforce(t, analysis.EnforcementOptions{
		Rules: parse(t, oldRules+"allow: [192.0.2.0/24]\n"), ReportOptions: analysis.ReportOptions{Top: 2},
		PoP: analysis.PoPOptions{Nodes: 2, Shards: 3, Spread: analysis.ByRequest, Lag: 5 * time.Millisecond, Losses: []analysis.Loss{{Shard: 1, At: time.Minute}}},
	}, story())
	var text bytes.Buffer
	if err := e.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/enforcement.txt", text.Bytes())
	goldenJSON(t, "enforcement.json", e)
}

func TestBadComparison(t *testing.T) {
	rules := parse(t, perMinute)
	for name, o := range map[string]analysis.ComparisonOptions{
		"no rules": {Base: rules},
		"no base":  {Rules: rules},
		"top":      {Rules: rules, Base: rules, ReportOptions: analysis.ReportOptions{Top: -1}},
		"pop":      {Rules: rules, Base: rules, PoP: analysis.PoPOptions{Nodes: -1}},
	} {
		if _, err := analysis.NewComparer(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// No path can escape its cell in a Markdown table, or its code formatting.
func TestMarkdownCells(t *testing.T) {
	for _, path := range []string{`/a|b`, `/a\|b`, `/a\\|b`, `/a\`, "/`|`", `/\|![x](http://192.0.2.1)|`} {
		entries := requestsOf("7", 30, 0, time.Millisecond)
		for i := range entries {
			entries[i].Path = path
		}
		report := compare(t, analysis.ComparisonOptions{Rules: parse(t, newRules), Base: parse(t, "rules: []")}, entries)
		var b strings.Builder
		if err := report.Document().WriteMarkdown(&b); err != nil {
			t.Fatal(err)
		}
		_, paths, _ := strings.Cut(b.String(), "Paths with the most")
		row := regexp.MustCompile(`(?m)^\| .*100%.*$`).FindString(paths)
		// cell matches a cell as GitHub parses it: a backslash and the next character, or anything but a bar.
		cells := regexp.MustCompile(`\|((?:\\[[:punct:]]|[^|])*)`).FindAllStringSubmatch(row, -1)
		if len(cells) != 4 { // the last one, after the last bar, is empty
			t.Fatalf("path %q: %d cells, want 3: %s", path, len(cells)-1, row)
		}
		if code := strings.TrimSpace(cells[0][1]); strings.Count(code, "`") != 2 || code[0] != '`' || code[len(code)-1] != '`' {
			t.Errorf("path %q: %s is not all code", path, code)
		}
	}
}
