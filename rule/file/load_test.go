package file_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
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

// matched returns the IDs of the rules that match a request.
func matched(set *rule.Set, method, host, path string) (ids []string) {
	req := rule.Request{Method: method, Host: host, Path: path}
	req.Canonicalize(rule.ClientPrefix{})
	for _, r := range set.Match(&req, nil) {
		ids = append(ids, r.ID)
	}
	return ids
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

// checkParts checks that reading a file in parts gives the same result as reading it whole. It
// returns the number of parts, and whether they could be used.
func checkParts(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string, size int) (parts int, used bool) {
	t.Helper()
	want, wantErr := rulefile.Parse("r.yaml", []byte(text))
	got, parts, used, err := rulefile.ParseInParts("r.yaml", []byte(text), 0, size)
	if diff := cmp.Diff(asErrors(wantErr), asErrors(err)); diff != "" {
		t.Fatalf("errors of %q in %d parts of %d bytes (-whole +parts):\n%s", text, parts, size, diff)
	}
	if err != nil {
		return parts, used
	}
	if diff := cmp.Diff(want.Rules(), got.Rules(), values); diff != "" {
		t.Fatalf("rules of %q in %d parts of %d bytes (-whole +parts):\n%s", text, parts, size, diff)
	}
	if diff := cmp.Diff(maps.Collect(want.Entries()), maps.Collect(got.Entries()), prefixes); diff != "" {
		t.Fatalf("networks of %q in %d parts of %d bytes (-whole +parts):\n%s", text, parts, size, diff)
	}
	return parts, used
}

// asErrors returns the errors with all fields, in a form that cmp prints well.
func asErrors(err error) []rulefile.Error {
	var list []rulefile.Error
	errs, _ := err.(rulefile.Errors)
	for _, e := range errs {
		list = append(list, *e)
	}
	return list
}

func TestLoadInParts(t *testing.T) {
	one := func(id string) string {
		return "- id: " + id + "\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n"
	}
	indented := func(n int, text string) string {
		return strings.ReplaceAll(strings.TrimSuffix(strings.Repeat(" ", n)+strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n)), strings.Repeat(" ", n)), "\n"+strings.Repeat(" ", n)+"\n", "\n\n")
	}
	three := one("a") + one("b") + one("c")
	for _, test := range []struct {
		name, text string
		parts      int // that the file is cut into, including the one for everything around the rules
		used       bool
	}{
		{"rules only", "rules:\n" + three, 4, true},
		{"rules without a final newline", "rules:\n" + strings.TrimSuffix(three, "\n"), 4, true},
		{"rules indented by two", "rules:\n" + indented(2, three), 4, true},
		{"rules indented by four", "rules:\n" + indented(4, three), 4, true},
		{"head", "# a comment\nallow: [192.0.2.1]\n\ndeny:\n- 192.0.2.2\n\nrules:\n" + three, 4, true},
		{"tail", "rules:\n" + three + "allow: [192.0.2.1]\ndeny:\n- 192.0.2.2\n", 4, true},
		{"head and tail", "allow: [192.0.2.1]\nrules:\n" + indented(2, three) + "# a comment\n\ndeny:\n  - 192.0.2.2\n", 4, true},
		{"comments and blank lines", "\n# 1\nrules: \n\n  # 2\n- id: a # 3\n\n  # 4\n  characteristics: [ip]\n  limits:\n  # 5\n  - {threshold: 5, period: 1m}\n\n# 6\n" + one("b") + "\n\n", 3, true},
		{"CRLF", strings.ReplaceAll("allow: [192.0.2.1]\nrules:\n"+three+"deny: [192.0.2.2]\n", "\n", "\r\n"), 4, true},
		{"byte order mark", "\ufeffrules:\n" + three, 0, false}, // Load removes it before
		{"dashes in a block", "rules:\n" + one("a") + "  response:\n    body: |\n      - id: x\n      rules:\n\n      - y\n" + one("b"), 3, true},
		{"dashes in a folded block at the end", "rules:\n" + one("a") + "  response:\n    body: >-\n     - id\n\n\n" + one("b"), 3, true},
		{"dash alone on a line", "rules:\n-\n  id: a\n  characteristics: [ip]\n  limits:\n  - threshold: 5\n    period: 1m\n" + one("b"), 0, false},
		{"lists at the indentation of their keys", "rules:\n- id: a\n  characteristics:\n  - ip\n  - host\n  limits:\n  - threshold: 5\n    period: 1m\n" + one("b"), 3, true},
		{"anchors within a rule", "rules:\n- id: a\n  characteristics: [ip, &h host, *h]\n  limits: [{threshold: 5, period: 1m}]\n" + one("b"), 3, true},
		{"rule in braces over several lines", "rules:\n- {id: a, characteristics: [ip],\n   limits: [{threshold: 5, period: 1m}]}\n" + one("b"), 3, true},

		{"errors in several rules", "rules:\n" + one("a b") + one("c") + "  action: blok\n" + one(""), 4, true},
		{"ID twice", "rules:\n" + one("a") + one("b") + one("a"), 4, true},
		{"network twice", "allow: [192.0.2.1]\nrules:\n" + three + "deny: [192.0.2.1]\n", 4, true},
		{"unknown key at the end", "rules:\n" + three + "zones: []\n", 4, false},
		{"more errors than are shown", "rules:\n" + strings.Repeat(one("_"), 30), 31, true},
		{"more errors than are shown, some outside the rules", "allow: [y]\nrules:\n" + strings.Repeat(one("_"), 30) + "deny: [x]\n", 31, false},
		{"no rules", "allow: [192.0.2.1]\n", 0, false},
		{"rules empty", "rules:\n", 0, false},
		{"rules in brackets", "rules: []\n", 0, false},
		{"rules is a mapping", "rules:\n  id: a\n", 0, false},
		{"start of a document", "---\nrules:\n" + three, 4, true},
		{"second document", "rules:\n" + one("a") + "---\nrules:\n" + one("b"), 2, false},
		{"end of the document", "rules:\n" + three + "...\n", 4, true},
		{"line separator in a comment", "rules:\n" + one("a") + "# \u2028- id: x\n" + one("b"), 3, false},
		{"anchors of a list", "allow: [&a 192.0.2.1]\nrules:\n" + one("&a 192.0.2.2") + "deny: [*a]\n", 0, false},

		{"rules twice", "rules:\n" + one("a") + "rules:\n" + one("b"), 2, false},
		{"rules in another form, too", "\"rules\": []\nallow: [192.0.2.1]\nrules:\n" + three + one("a b"), 5, false},
		{"tab that indents", "rules:\n" + one("a") + "\t\n" + one("b"), 0, false},
		{"tab after a block", "rules:\n" + one("a") + "  response:\n    body: |\n      x\n\n\t\n", 0, false},

		{"anchors of another rule", "rules:\n- id: a\n  characteristics: &c [ip]\n  limits: &l [{threshold: 5, period: 1m}]\n- {id: b, characteristics: *c, limits: *l}\n", 3, false},
		{"anchor of a rule in a list", "rules:\n- id: &a 192.0.2.1\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\ndeny: [*a]\n", 2, false},
		{"rule too far left", "rules:\n" + indented(2, one("a")) + one("b"), 2, false},
		{"rule too far right", "rules:\n" + one("a") + indented(1, one("b")), 2, false},
		{"key too far left", "rules:\n" + indented(4, one("a")) + "  allow: []\n", 2, false},
		{"key that begins with a dash", "rules:\n" + one("a") + "-x: y\n" + one("b"), 2, false},
		{"quoted text that looks like a rule", "rules:\n" + one("a") + "  response: {body: \"\n- id: x\n\"}\n" + one("b"), 3, false},
		{"bracket not closed", "rules:\n" + one("a") + "  match: {hosts: [a\n" + one("b"), 3, false},
		{"closing brace in the first column", "rules:\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]\n}\n" + one("b"), 2, false},
		{"control character", "rules:\n" + one("a") + "# \x00\n" + one("b"), 3, false},
		{"invalid UTF-8 at the end", "rules:\n" + three + "# \xff", 4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if parts, used := checkParts(t, test.text, 1); parts != test.parts || used != test.used {
				t.Errorf("%q is cut into %d parts, used %t, want %d, %t", test.text, parts, used, test.parts, test.used)
			}
			checkParts(t, test.text, 80)
			checkParts(t, test.text, 1<<20)
		})
	}
	for _, test := range valid {
		checkParts(t, test.text, 1)
	}
	for _, test := range invalid {
		checkParts(t, test.text, 1)
	}
}

func TestLoadInPartsOnlyWhatIsLarge(t *testing.T) {
	text := "rules:\n" + strings.TrimPrefix(withID("a"), "rules:\n") + strings.TrimPrefix(withID("b"), "rules:\n")
	if _, parts, _, _ := rulefile.ParseInParts("r.yaml", []byte(text), len(text)+1, 1); parts != 0 {
		t.Errorf("a file of %d bytes is cut into %d parts, want none below %d bytes", len(text), parts, len(text)+1)
	}
	if _, parts, _, _ := rulefile.ParseInParts("r.yaml", []byte(text), len(text), 1); parts != 3 {
		t.Errorf("a file of %d bytes is cut into %d parts, want 3", len(text), parts)
	}
}

// A file that is large enough to be read in parts by default.
func TestLoadLarge(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("allow: [192.0.2.1]\nrules:\n")
	const largeFile = 4 << 20 // minimum size of a file that is read in parts
	n := 0
	for ; text.Len() < largeFile; n++ {
		fmt.Fprintf(&text, "  - id: r%d\n    match: {hosts: [h%d.example]}\n    characteristics: [ip]\n    limits: [{threshold: %d, period: 1m}]\n", n, n, n%3+1)
	}
	file := filepath.Join(write(t, map[string]string{"rules.yaml": text.String()}), "rules.yaml")
	set, err := rulefile.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	last := set.Rules()[n-1]
	if len(set.Rules()) != n || last.Index != n-1 || last.ID != fmt.Sprintf("r%d", n-1) || last.Line != 4*n-1 {
		t.Errorf("got %d rules, the last %s with index %d on line %d, want %d, r%d, %d, %d", len(set.Rules()), last.ID, last.Index, last.Line, n, n-1, n-1, 4*n-1)
	}
	if got := matched(set, "GET", "h77.example", "/"); len(got) != 1 || got[0] != "r77" {
		t.Errorf("rules of h77.example = %q, want r77", got)
	}
	fmt.Fprintf(&text, "  - id: r5\n    limits: [{threshold: 1, period: 1m}]\n")
	_, err = rulefile.Parse("rules.yaml", text.Bytes())
	want := fmt.Sprintf("rules.yaml:%d:5: this rule has no characteristics (write characteristics: [ip] to count each client separately)\n"+
		"rules.yaml:%d:9: there is already a rule r5 at rules.yaml:23 (IDs must be unique across all files)", 4*n+3, 4*n+3)
	if err == nil || err.Error() != want {
		t.Errorf("error after %d rules = %v, want %s", n, err, want)
	}
}

// lineKinds are lines for files that look more or less like rules files.
var lineKinds = []string{
	"rules:", "rules: ", "rules: []", "rules: # a", "allow: [192.0.2.1]", "deny: [192.0.2.1]", "deny:", "- 192.0.2.2", "  - 192.0.2.3", "zones:", "allow: [&x 192.0.2.4]", "- *x",
	"- id: a", "- id: b", "- id: &x c", "  - id: d", "  - id: e", "    - id: f", "- {id: g, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}", "- {id: h,", "-", "  -", "-x", "- - id: i",
	"  characteristics: [ip]", "    characteristics: [ip]", "  characteristics: [host]}", "      characteristics: [ip]", "  limits: [{threshold: 5, period: 1m}]", "    limits: [{threshold: 5, period: 1m}]", "      limits: [{threshold: 5, period: 1m}]",
	"  limits:", "  - {threshold: 5, period: 1m}", "    - {threshold: 5, period: 1h}", "  - threshold: 5", "    period: 1m", "  limits: *x",
	"  response:", "    body: |", "    body: >+", "     - id: x", "      rules:", "  response: {body: \"", "\"}", "'", "  }", "]", " x", "    action: blok", "  action: log", "  action: &x log", "id: j", "  id: k",
	"", " ", "\t", "# a", "  # b", "      # c", "---", "...", "%YAML 1.1", "\x00", "\xff", "\u2028", "? x", ": y", "  x: y", " x: y", "!!seq", "- !x",
}

func TestLoadInPartsEqualsLoadingWhole(t *testing.T) {
	good := rapid.Custom(func(t *rapid.T) string {
		indent := strings.Repeat(" ", rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "indent"))
		text := rapid.SampledFrom([]string{"", "allow: [192.0.2.1]\n", "# a\n\n", "deny:\n- 192.0.2.2\n"}).Draw(t, "head") + "rules:\n"
		for i := range rapid.IntRange(1, 6).Draw(t, "rules") {
			for _, line := range []string{
				fmt.Sprintf("- id: %s%d", rapid.SampledFrom([]string{"r", "r", "r", "r", "r", "_", "&x r"}).Draw(t, "id"), i),
				rapid.SampledFrom([]string{"  characteristics: [ip]", "  characteristics:\n" + indent + "  - ip", "  characteristics: &x [ip]", "  characteristics: *x", "  characteristics: [\n" + indent + "    ip]"}).Draw(t, "characteristics"),
				rapid.SampledFrom([]string{"  limits: [{threshold: 5, period: 1m}]", "  limits:\n" + indent + "    - threshold: 5\n" + indent + "      period: 1m", "  limits: [{threshold: 0, period: 1m}]"}).Draw(t, "limits"),
				rapid.SampledFrom([]string{"", "", "", "# a", "  # b", "  response:\n" + indent + "    body: |\n" + indent + "      - x\n\n" + indent + "      y", "  action: blok", "  action: log"}).Draw(t, "more"),
			} {
				text += indent + line + "\n"
			}
		}
		return text + rapid.SampledFrom([]string{"", "deny: [192.0.2.1]\n", "allow: [192.0.2.3]\n", "# a\n", "zones: []\n"}).Draw(t, "tail")
	})
	counts := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		list := strings.Split(good.Draw(t, "text"), "\n")
		for range rapid.IntRange(0, 3).Draw(t, "more lines") {
			at := rapid.IntRange(0, len(list)-1).Draw(t, "at")
			line := rapid.SampledFrom(lineKinds).Draw(t, "line")
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				list[at] = line
			case 1:
				list = append(list[:at:at], append([]string{line}, list[at:]...)...)
			default:
				list = append(list[:at:at], list[at+1:]...)
			}
			if len(list) == 0 {
				list = []string{""}
			}
		}
		text := strings.Join(list, rapid.SampledFrom([]string{"\n", "\n", "\r\n"}).Draw(t, "line end"))
		_, used := checkParts(t, text, rapid.SampledFrom([]int{1, 50, 200}).Draw(t, "size"))
		counts[used]++
	})
	if counts[true] == 0 || counts[false] == 0 {
		t.Errorf("%d files were read in parts, %d could not be, want some of both", counts[true], counts[false])
	}
}

func FuzzLoadInParts(f *testing.F) {
	for _, test := range valid {
		f.Add(test.text)
	}
	for _, test := range invalid {
		if len(test.text) < 1000 {
			f.Add(test.text)
		}
	}
	for i := range lineKinds {
		f.Add("rules:\n- id: a\n  limits: []\n" + lineKinds[i] + "\n- id: b\n" + lineKinds[i] + "\n  limits: []\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkParts(t, text, 1)
	})
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
