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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/edgelimit/edge"

// layers lists the packages of the module, and what each may import from it, in an order in which each
// package imports only packages above it. Adding an import is a decision: it is made here.
var layers = []struct {
	name    string
	imports []string
}{
	{"internal/idle", nil},                                                    // for clients of shards and of load tests
	{"internal/tick", nil},                                                    // for goroutines that repeat a task
	{"internal/prose", nil},                                                   // for wording errors and descriptions
	{"internal/lograte", []string{"internal/prose"}},                          // for logs
	{"internal/strictyaml", []string{"internal/prose"}},                       // for rules files and the files that go with them
	{"internal/complaint", []string{"internal/prose", "internal/strictyaml"}}, // for errors that a command writes
	{"internal/chart", []string{"internal/prose"}},                            // for reports and the node's page
	{"internal/version", nil},                                                 // for commands
	{"internal/bubble", nil},                                                  // for tests
	{"internal/golden", nil},                                                  // for tests

	// Limiting: the path of a request through these packages.
	{"counter", []string{"internal/prose"}},
	{"counter/wire", []string{"counter", "internal/idle"}},
	{"counter/memcached", []string{"counter", "counter/wire"}},
	{"counter/redis", []string{"counter", "counter/wire"}},
	{"counter/shard", nil},
	{"ring", nil},
	{"rule", []string{"counter", "internal/prose"}},
	{"rule/describe", []string{"counter", "internal/prose", "rule"}},
	{"rule/file", []string{"counter", "internal/prose", "internal/strictyaml", "rule"}},
	{"mitigation", []string{"counter"}},
	{"async", []string{"counter", "mitigation", "ring", "rule"}},
	{"limit/decision", []string{"counter", "rule", "rule/describe"}},
	{"limit/exact", nil},
	{"limit", []string{"async", "counter", "limit/decision", "limit/exact", "mitigation", "rule"}},
	{"rule/check", []string{"internal/chart", "internal/prose", "limit", "rule", "rule/describe", "rule/file"}},

	// Clients and origins.
	{"proxy/conns", nil},
	{"proxy/http1", []string{"proxy/conns"}},
	{"proxy/http2/http2test", nil},
	{"proxy/http2", []string{"proxy/conns", "proxy/http1"}},
	{"proxy/http3", []string{"proxy/conns", "proxy/http1", "proxy/http2"}},
	{"proxy/spop", []string{"proxy/conns"}},
	{"proxy", []string{"internal/lograte", "limit", "proxy/conns", "proxy/http1", "proxy/http2", "proxy/http3", "proxy/spop", "rule"}},

	// A node.
	{"pop/gossip", []string{"internal/lograte", "internal/tick", "proxy/conns"}},
	{"pop/vote", nil},
	{"pop/setting", []string{"internal/prose"}},
	{"pop/peers", []string{"mitigation", "pop/gossip"}},
	{"pop/shards", []string{"async", "counter", "counter/memcached", "counter/redis", "counter/wire", "internal/tick", "pop/gossip", "pop/setting", "pop/vote"}},
	{"operate", []string{"async", "counter", "internal/lograte", "internal/prose", "limit", "limit/decision", "mitigation", "pop/gossip", "pop/peers", "pop/setting", "pop/shards", "rule", "rule/describe"}},
	{"operate/page", []string{"internal/chart", "internal/prose", "operate"}},
	{"pop", []string{"counter", "counter/shard", "counter/wire", "internal/lograte", "internal/prose", "internal/tick", "limit", "limit/decision", "mitigation", "operate", "operate/page", "pop/gossip", "pop/peers", "pop/setting", "pop/shards", "proxy", "proxy/conns", "proxy/http1", "proxy/spop", "rule", "rule/file"}},
	{".", []string{"pop", "proxy", "rule", "rule/file"}}, // for other programs

	// Tools: see tools.
	{"rule/translate", []string{"internal/prose", "internal/strictyaml", "rule", "rule/file"}},
	{"analysis/accesslog", nil},
	{"analysis/client", []string{"analysis/accesslog"}},
	{"analysis/reading", []string{"analysis/accesslog", "internal/chart", "internal/complaint", "internal/prose"}},
	{"analysis/figure", []string{"internal/chart", "rule"}},
	{"analysis", []string{"analysis/accesslog", "analysis/client", "analysis/figure", "async", "counter", "internal/chart", "internal/prose", "limit", "mitigation", "pop/vote", "rule", "rule/describe", "rule/file"}},
	{"analysis/accuracy", []string{"analysis/accesslog", "analysis/client", "analysis/figure", "counter", "internal/chart", "limit/exact", "rule"}},
	{"analysis/cases", []string{"analysis", "analysis/accesslog", "analysis/figure", "internal/chart", "internal/prose", "internal/strictyaml", "limit", "rule"}},
	{"analysis/decisions", []string{"analysis/accesslog", "analysis/figure", "counter", "internal/chart", "internal/complaint", "internal/prose", "limit", "limit/decision", "rule", "rule/describe"}},
	{"load/judge", []string{"rule"}}, // and nothing else that nodes count or decide by, ever
	{"load/mix", []string{"analysis/accesslog", "internal/prose", "internal/strictyaml"}},
	{"load", []string{"analysis/accesslog", "internal/chart", "internal/idle", "internal/prose", "internal/tick", "load/judge", "load/mix"}},

	{"internal/harness", []string{"counter", "counter/shard"}}, // for tests
	{"internal/trace", []string{"analysis/accesslog"}},         // for tests

	{"docs/playground", []string{"analysis", "analysis/accesslog", "analysis/reading", "counter", "internal/chart", "internal/complaint", "internal/prose", "internal/strictyaml", "internal/version", "rule", "rule/check", "rule/file", "rule/translate"}},
	{"cmd/edge", []string{"analysis", "analysis/accesslog", "analysis/accuracy", "analysis/cases", "analysis/decisions", "analysis/reading", "counter", "counter/shard", "internal/chart", "internal/complaint", "internal/lograte", "internal/prose", "internal/strictyaml", "internal/tick", "internal/version", "load", "load/mix", "operate", "pop", "pop/setting", "rule", "rule/check", "rule/describe", "rule/file", "rule/translate"}},
}

// tools are the packages that, with those below them, only commands import. A tool may read logs with analysis/accesslog.
var tools = []string{"rule/translate", "analysis", "load"}

var commands = []string{"cmd/edge", "docs/playground"}

// toolOf returns the tool that a package belongs to, or "".
func toolOf(name string) string {
	for _, tool := range tools {
		if name == tool || strings.HasPrefix(name, tool+"/") {
			return tool
		}
	}
	return ""
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

// CONTRIBUTING.md says what each package is for, except internal ones and helpers of tests.
func TestEveryPackageIsExplained(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		hidden := strings.HasPrefix(layer.name, "internal/") || strings.HasSuffix(layer.name, "test") || layer.name == "."
		if !hidden && !strings.Contains(string(text), "`"+layer.name+"`") {
			t.Errorf("the table in CONTRIBUTING.md lacks %s", layer.name)
		}
	}
}

func TestArrows(t *testing.T) {
	used := map[string][]string{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		name = cmp.Or(name, ".")
		used[name] = []string{}
		for _, i := range p.Imports {
			if to, ours := strings.CutPrefix(i, module+"/"); ours {
				used[name] = append(used[name], to)
			}
		}
	}
	above := map[string]bool{}
	for _, p := range layers {
		if _, ok := used[p.name]; !ok {
			t.Errorf("there is no package %s", p.name)
		}
		for _, to := range used[p.name] {
			if !slices.Contains(p.imports, to) {
				t.Errorf("%s imports %s", p.name, to)
			}
			if tool := toolOf(to); tool != "" && tool != toolOf(p.name) && to != "analysis/accesslog" && !slices.Contains(commands, p.name) {
				t.Errorf("%s imports %s, a tool", p.name, to)
			}
		}
		for _, to := range p.imports {
			if !slices.Contains(used[p.name], to) {
				t.Errorf("%s may import %s and does not: remove it from the list", p.name, to)
			}
			if !above[to] {
				t.Errorf("%s imports %s, which must be listed above it", p.name, to)
			}
		}
		above[p.name] = true
	}
	for name := range used {
		if !above[name] {
			t.Errorf("package %s is not in the list", name)
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
