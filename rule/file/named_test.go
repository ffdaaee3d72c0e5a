package file_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// The text of network files is part of the hash by which nodes compare their rules.
func TestNetworkFiles(t *testing.T) {
	rules := withKeys("match: {networks: [a]}") + "networks: {a: {file: a.txt}}\n"
	dir := write(t, map[string]string{"r.yaml": rules, "a.txt": "192.0.2.0/24\n", "2/r.yaml": rules, "2/a.txt": "192.0.2.0/25\n"})
	all, err := rulefile.Read(dir + "/r.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{dir + "/a.txt"}; !slices.Equal(all.Named, want) {
		t.Errorf("Read names the files %q, want %q", all.Named, want)
	}
	one := all.Set
	other, err := rulefile.Load(dir + "/2/r.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if one.Hash() == other.Hash() {
		t.Error("rules with different networks have the same hash")
	}
	moved := map[uint64]bool{} // a line that moves from one file to the next
	for _, lines := range [][2]string{{"192.0.2.1\n192.0.2.2\n", "192.0.2.3\n"}, {"192.0.2.1\n", "192.0.2.2\n192.0.2.3\n"}} {
		rules := withKeys("match: {networks: [a]}", "except: {networks: [b]}") + "networks: {a: {file: a.txt}, b: {file: b.txt}}\n"
		set, err := rulefile.Load(write(t, map[string]string{"r.yaml": rules, "a.txt": lines[0], "b.txt": lines[1]}) + "/r.yaml")
		if err != nil {
			t.Fatal(err)
		}
		moved[set.Hash()] = true
	}
	if len(moved) < 2 {
		t.Error("rules whose files differ in where one ends have the same hash")
	}
	for addr, want := range map[string][2]int{"192.0.2.1": {1, 1}, "192.0.2.200": {1, 0}, "192.0.3.1": {0, 0}, "": {0, 0}} {
		req := rule.Request{Method: "GET", Path: "/"}
		req.Addr, _ = netip.ParseAddr(addr)
		req.Canonicalize(rule.ClientPrefix{})
		if got := [2]int{len(one.Match(&req, nil)), len(other.Match(&req, nil))}; got != want {
			t.Errorf("%q is matched by %v rules of the two sets, want %v", addr, got, want)
		}
	}
}

func TestLabelErrors(t *testing.T) {
	rules := "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:asn]")
	for _, test := range []struct{ name, rules, file, want string }{
		{"no network", rules, "x AS1\n", `asn.txt:1:1: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
		{"no label", rules, "# one\n 192.0.2.0/24\n", `asn.txt:2:2: "192.0.2.0/24" has no label`},
		{"twice, with the longest label", rules, "192.0.2.0/24 " + strings.Repeat("a", 64) + "\n192.0.2.0/24 b\n", "asn.txt:2:1: 192.0.2.0/24 is listed twice"},
		{"long", rules, "192.0.2.0/24 " + strings.Repeat("a", 65), "asn.txt:1:1: a label has 65 bytes"},
		{"empty", rules, "# nothing\n", "asn.txt: the file has no labels"},
		{"unknown", "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:ans]"), "192.0.2.0/24 a\n", `rules.yaml:4:21: there are no labels "ans" (did you mean asn?)`},
		{"none", withCharacteristics("[ip, label:asn]"), "", `there are no labels "asn" (write labels: at the beginning of a line`},
		{"no file", "labels: {asn: {file: other.txt}}\n" + withCharacteristics("[label:asn]"), "", "rules.yaml:1:22: open other.txt: no such file"},
		{"an alternative", "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[{first: [label:x, ip]}]"), "192.0.2.0/24 a\n", `there are no labels "x"`},
	} {
		dir := write(t, map[string]string{"rules.yaml": test.rules, "asn.txt": test.file})
		set, err := rulefile.Load(dir + "/rules.yaml")
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), test.want) {
			t.Errorf("%s: %v, %v, want the error %s", test.name, set, err, test.want)
		}
	}
	if set, err := rulefile.Parse("r.yaml", []byte(rules)); err == nil || !strings.Contains(err.Error(), "rules that are not in a file cannot name one") {
		t.Errorf("Parse = %v, %v", set, err)
	}
}
