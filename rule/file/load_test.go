package file_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// write creates a directory with the given files, by name.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ids returns the IDs of the rules of a set.
func ids(set *rule.Set) string {
	var list []string
	for _, r := range set.Rules() {
		list = append(list, r.ID)
	}
	return strings.Join(list, " ")
}

func TestLoad(t *testing.T) {
	dir := write(t, map[string]string{
		"b.yaml": withID("b"), "a.yml": withID("a"), "c.yaml": "allow: [192.0.2.1]\n",
		".hidden.yaml": "no rules", "README.md": "no rules", "b.yaml~": "no rules", "yaml": "no rules",
		"d.yaml/e.yaml": "no rules", "one.json": withID("one"),
	})
	for _, test := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"files in the order given", []string{"b.yaml", "a.yml"}, "b a"},
		{"file with another ending", []string{"one.json"}, "one"},
		{"directory by name", []string{"."}, "a b"},
		{"directory and file", []string{".", "one.json"}, "a b one"},
		{"directory in a directory", []string{"d.yaml/..", "one.json"}, "a b one"},
	} {
		var paths []string
		for _, path := range test.paths {
			paths = append(paths, filepath.Join(dir, path))
		}
		set, err := rulefile.Load(paths...)
		if err != nil {
			t.Errorf("%s: Load(%q) = %v", test.name, test.paths, err)
		} else if got := ids(set); got != test.want {
			t.Errorf("%s: Load(%q) has the rules %q, want %q", test.name, test.paths, got, test.want)
		}
	}
	set, err := rulefile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r := set.Rules()[1]; r.File != filepath.Join(dir, "b.yaml") || r.Line != 2 || r.Index != 1 {
		t.Errorf("the second rule has index %d at %s:%d, want 1 at b.yaml:2", r.Index, r.File, r.Line)
	}
}

// A ConfigMap is mounted as links to files in a hidden directory, which is itself a link, so that
// all files change at the same time.
func TestLoadConfigMap(t *testing.T) {
	dir := write(t, map[string]string{"..2024_01_31/rules.yaml": withID("a"), "..2024_01_31/more.yaml": "deny: [192.0.2.1]\n"})
	for link, to := range map[string]string{"..data": "..2024_01_31", "rules.yaml": "..data/rules.yaml", "more.yaml": "..data/more.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(set); got != "a" || len(maps.Collect(set.Entries())) != 1 {
		t.Errorf("Load = rules %q and %d networks, want a and 1", got, len(maps.Collect(set.Entries())))
	}
}

func TestLoadErrors(t *testing.T) {
	dir := write(t, map[string]string{
		"good.yaml": withID("a"), "same.yaml": "# a comment\n" + withID("a") + "- id: a\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n",
		"bad.yaml": "allow: [x]\n", "worse.yaml": "deny: [\n", "list1.yaml": "allow: [192.0.2.0/24]\n", "list2.yaml": "deny: [198.51.100.1,\n192.0.2.0/24]\n",
		"sets.yaml":   "networks: {a: {file: lists/a.txt}, b: {file: lists/b.txt}, c: {file: lists/none.txt}, d: {file: lists/empty.txt}}\n",
		"lists/a.txt": "# good\n192.0.2.0/24\n\n  192.0.2.1/24 # bad\nx\n", "lists/b.txt": "192.0.2.0/24\n192.0.2.0/24\n", "lists/empty.txt": "# nothing\n",
		"empty/readme": "", "linked/gone.yaml": "",
	})
	gone := filepath.Join(dir, "linked/gone.yaml")
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere.yaml", gone); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		paths []string
		want  string // with DIR for the directory
	}{
		{"no path", nil, "rule: no rules file given"},
		{"no file", []string{"none.yaml"}, "rule: stat DIR/none.yaml: no such file or directory"},
		{"directory without rules files", []string{"empty"}, "rule: no .yaml or .yml file in directory DIR/empty"},
		{"dangling link", []string{"linked"}, "rule: open DIR/linked/gone.yaml: no such file or directory"},
		{"named pipe that nobody writes to", []string{"pipe"}, "rule: DIR/pipe is not a regular file"},
		{"ID in two files", []string{"good.yaml", "same.yaml"}, lines(
			"DIR/same.yaml:3:7: there is already a rule a at DIR/good.yaml:2 (IDs must be unique across all files)",
			"DIR/same.yaml:6:7: there is already a rule a at DIR/good.yaml:2 (IDs must be unique across all files)",
		)},
		{"file given twice", []string{"good.yaml", "good.yaml"},
			"DIR/good.yaml:2:7: there is already a rule a at DIR/good.yaml:2 (IDs must be unique across all files)"},
		{"network in two files", []string{"list1.yaml", "list2.yaml"},
			"DIR/list2.yaml:2:1: 192.0.2.0/24 is already listed at DIR/list1.yaml:1 (list a network once, in allow or in deny; of several that contain an address, the longest prefix wins)"},
		{"networks in files, relative to the rules", []string{"sets.yaml"}, lines(
			"DIR/sets.yaml:1:70: open DIR/lists/none.txt: no such file or directory (names are relative to the rules file)",
			`DIR/lists/a.txt:4:3: "192.0.2.1/24" is an address within a network (write 192.0.2.0/24 for the network, 192.0.2.1 for the address)`,
			`DIR/lists/a.txt:5:1: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
			"DIR/lists/empty.txt: the file has no networks (write a network on each line)",
		)},
		{"all errors of all files, in the order of the files", []string{"worse.yaml", "good.yaml", "same.yaml", "bad.yaml"}, lines(
			"DIR/worse.yaml:1:8: not YAML: while parsing a flow node at 2:1: did not find expected node content (check quotes, brackets and indentation)",
			"DIR/same.yaml:3:7: there is already a rule a at DIR/good.yaml:2 (IDs must be unique across all files)",
			"DIR/same.yaml:6:7: there is already a rule a at DIR/good.yaml:2 (IDs must be unique across all files)",
			`DIR/bad.yaml:1:9: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		)},
	} {
		var paths []string
		for _, path := range test.paths {
			paths = append(paths, filepath.Join(dir, path))
		}
		set, err := rulefile.Load(paths...)
		if err == nil {
			t.Errorf("%s: Load(%q) = rules %q, want an error", test.name, test.paths, ids(set))
			continue
		}
		if diff := cmp.Diff(test.want, strings.ReplaceAll(err.Error(), dir, "DIR")); diff != "" {
			t.Errorf("%s: error of Load(%q) (-want +got):\n%s", test.name, test.paths, diff)
		}
	}
}

// Errors that are found after all files are read also have a source line.
func TestLoadExcerpt(t *testing.T) {
	_, err := rulefile.Parse("r.yaml", []byte("# a\n"+withID("a")+"- characteristics: [ip]\n  id: a\n  limits: [{threshold: 5, period: 1m}]\n"))
	var errs rulefile.Errors
	if errs, _ = err.(rulefile.Errors); len(errs) != 1 {
		t.Fatalf("Parse = %v, want one error", err)
	}
	if got, want := errs[0].Excerpt(), "  id: a\n      ^"; got != want {
		t.Errorf("Excerpt of %v\n%s\nwant\n%s", errs[0], got, want)
	}
}

func TestFiles(t *testing.T) {
	dir := write(t, map[string]string{"b.yaml": "", "a.yml": "", "c.txt": ""})
	got, err := rulefile.Files(filepath.Join(dir, "c.txt"), dir)
	want := []string{filepath.Join(dir, "c.txt"), filepath.Join(dir, "a.yml"), filepath.Join(dir, "b.yaml")}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Files = %v (-want +got):\n%s", err, diff)
	}
	if got, err := rulefile.Files(); err == nil {
		t.Errorf("Files of nothing = %q, want an error", got)
	}
}
