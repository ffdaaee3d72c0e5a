// Package edge_test tests the module as a whole.
package edge_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/edgelimit/edge"

// arrows lists the packages of the module, and what each may import from it. A package that
// imports nothing is a leaf. Adding an arrow is a decision: it is made here.
var arrows = map[string][]string{
	".":                   {"pop", "pop/proxy", "pop/rule", "pop/rulefile"}, // for other programs
	"analysis":            {"analysis/accesslog", "analysis/client", "analysis/exact", "analysis/figure", "analysis/page", "counter", "counter/memcached", "mitigation", "pop/count", "pop/limit", "pop/rule", "pop/rule/describe", "pop/rulefile", "pop/vote"},
	"analysis/accuracy":   {"analysis/accesslog", "analysis/client", "analysis/exact", "analysis/figure", "analysis/page", "counter", "pop/rule"},
	"analysis/cases":      {"analysis", "analysis/accesslog", "analysis/figure", "analysis/page", "internal/prose", "internal/strictyaml", "pop/limit", "pop/rule"},
	"analysis/client":     {"analysis/accesslog"},
	"analysis/decisions":  {"analysis/exact", "analysis/figure", "analysis/page", "counter", "pop/decision", "pop/rule", "pop/rule/describe"},
	"analysis/exact":      {},
	"analysis/figure":     {"analysis/page", "pop/rule"},
	"analysis/accesslog":  {},
	"analysis/page":       {},
	"async":               {},
	"load":                {"analysis", "analysis/accesslog", "analysis/page", "load/judge", "load/mix"},
	"load/judge":          {"pop/rule"}, // and nothing else that nodes count or decide by, ever
	"load/mix":            {"internal/prose", "internal/strictyaml"},
	"ring":                {},
	"counter":             {},
	"counter/memcached":   {"counter"},
	"counter/shard":       {},
	"mitigation":          {"counter"},
	"pop/rule":            {"counter"},
	"pop/rule/describe":   {"counter", "internal/prose", "pop/rule"},
	"pop/rule/translate":  {"internal/prose", "internal/strictyaml", "pop/rule", "pop/rulefile"},
	"pop/rulefile":        {"counter", "internal/prose", "internal/strictyaml", "pop/rule"},
	"pop/count":           {"async", "counter", "counter/memcached", "mitigation", "pop/rule", "ring"},
	"pop/decision":        {"counter", "pop/rule", "pop/rule/describe"},
	"pop/limit":           {"counter", "mitigation", "pop/count", "pop/decision", "pop/rule"},
	"pop/conns":           {},
	"pop/http1":           {"pop/conns"},
	"pop/http2":           {"pop/conns", "pop/http1"},
	"pop/http2/http2test": {},
	"pop/proxy":           {"internal/lograte", "pop/conns", "pop/http1", "pop/http2", "pop/limit", "pop/rule", "pop/spop"},
	"pop/spop":            {"pop/conns"},
	"pop/admin":           {"internal/lograte"},
	"pop/gossip":          {},
	"pop/operate":         {"counter", "mitigation", "pop/admin", "pop/count", "pop/decision", "pop/gossip", "pop/limit", "pop/peers", "pop/rule", "pop/rule/describe", "pop/shards"},
	"pop/peers":           {"internal/lograte", "mitigation", "pop/admin", "pop/gossip"},
	"pop/setting":         {},
	"pop/shards":          {"counter/memcached", "internal/tick", "pop/admin", "pop/count", "pop/gossip", "pop/vote"},
	"pop/vote":            {},
	"pop/page":            {"analysis/page", "pop/admin", "pop/count", "pop/limit"},
	"pop":                 {"counter", "counter/memcached", "counter/shard", "internal/lograte", "internal/tick", "mitigation", "pop/admin", "pop/decision", "pop/gossip", "pop/http1", "pop/limit", "pop/operate", "pop/page", "pop/peers", "pop/proxy", "pop/rule", "pop/rulefile", "pop/setting", "pop/shards", "pop/spop"},
	"internal/bubble":     {},                               // for tests
	"internal/golden":     {},                               // for tests
	"internal/harness":    {"counter", "counter/memcached"}, // for tests
	"internal/trace":      {"analysis/accesslog"},           // for tests
	"internal/lograte":    {},                               // for log lines that outsiders can cause
	"internal/tick":       {},                               // for goroutines that repeat a task
	"internal/strictyaml": {"internal/prose"},               // for rules files and the files that go with them
	"internal/prose":      {},                               // for wording errors and descriptions
	"cmd/edge":            {"analysis", "analysis/accesslog", "analysis/accuracy", "analysis/cases", "analysis/decisions", "analysis/page", "counter", "counter/shard", "internal/prose", "internal/strictyaml", "load", "load/judge", "load/mix", "pop", "pop/admin", "pop/limit", "pop/rule", "pop/rule/describe", "pop/rule/translate", "pop/rulefile", "pop/setting"},
}

// A listedPackage is a package as printed by go list.
type listedPackage struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func list(t *testing.T) (packages []listedPackage) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		name = cmp.Or(name, ".")
		seen[name] = true
		allowed, known := arrows[name]
		if !known {
			t.Errorf("package %s is not in the map of imports", name)
		}
		var used []string
		for _, i := range p.Imports {
			if to, ours := strings.CutPrefix(i, module+"/"); ours {
				used = append(used, to)
				if !slices.Contains(allowed, to) {
					t.Errorf("%s imports %s", name, to)
				}
			}
		}
		for _, to := range allowed {
			if !slices.Contains(used, to) {
				t.Errorf("%s may import %s and does not: remove it from the map", name, to)
			}
		}
	}
	for name := range arrows {
		if !seen[name] {
			t.Errorf("there is no package %s", name)
		}
	}
}

// Package counter, which nodes, replay and rules share, links neither sockets nor metrics.
func TestCounterHasNoHeavyDeps(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./counter").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"net", "github.com/bradfitz/gomemcache/memcache", "github.com/prometheus/client_golang/prometheus"} {
		if slices.Contains(strings.Fields(string(out)), heavy) {
			t.Errorf("counter links %s", heavy)
		}
	}
}

// Every package says in one place what it is for.
func TestPackageDocs(t *testing.T) {
	for _, p := range list(t) {
		if p.Doc == "" {
			t.Errorf("package %s has no doc", p.ImportPath)
		}
		var with []string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				with = append(with, file)
			}
		}
		if len(with) != 1 {
			t.Errorf("package %s has its package comment in %v, want it in one file", p.ImportPath, with)
		}
	}
}
