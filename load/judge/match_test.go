package judge_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Matching and keys are implemented twice from the documentation: here and by the nodes. Both must agree.
func TestKeysMatchNodes(t *testing.T) {
	characteristics := []string{"ip", "ip, path", "'header:x-key'", "{header: x-key, missing: skip}", "'cookie:sid', method", "'query:user', host", "'header:x-key', 'query:user'",
		"'network:24/48'", "'network:31/64', host", "'network:32/56'", "'network:1/1'", "'label:by'", "'label:by', 'network:30/60'",
		"{first: ['cookie:sid', 'header:x-key', ip]}", "{first: ['query:user', ip]}, host", "{first: ['header:x-key', {cookie: sid, missing: skip}]}", "{first: ['label:by', 'network:24/32']}, 'query:user'"}
	for _, kind := range rule.KindNames()[rule.IP:] {
		if !strings.Contains(strings.Join(characteristics, " "), kind) {
			t.Errorf("add the kind %s to characteristics in this test", kind)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(filepath.Join(dir, "labels.txt"), []byte("192.0.2.0/24 one\n192.0.2.2/31,two\n2001:db8::/32 one # both\n2001:db8:0:1::/64\tthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		one := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
		text := fmt.Sprintf("rules: [{id: a, match: {%s%s%s%s%s%s%s%s}, %scharacteristics: [%s], limits: [{threshold: 5, period: 1m}]}]\nlabels: {by: {file: labels.txt}}\nnetworks: {a: [192.0.2.0/24, '2001:db8::/64'], b: [192.0.2.1, '2001:db8::2']}",
			one("networks", "", "networks: [a], ", "networks: [a, b], "),
			one("hosts", "", "hosts: [example.com, '*.example.com'], ", "hosts: ['*.b.example.com', '[2001:db8::1]'], "),
			one("methods", "", "methods: [GET, PURGE], ", "methods: [POST], "),
			one("paths", "", "paths: [/login], ", "paths: [/login/, '/a/*'], ", "paths: ['/api/*', /b], ", "paths: ['/*/login', '/a*b'], ", "paths: ['/*/*/*', '*in'], "),
			one("case", "", "path_case: exact, "), one("slash", "", "path_trailing_slash: exact, "), one("parameters", "", "path_parameters: exact, "),
			one("reading", "", "path_reading: resolved, ", "path_reading: literal, ", "path_reading: url, "),
			one("except", "", "except: {paths: [/login]}, ", "except: [{methods: [PURGE]}, {hosts: ['*.example.com'], paths: ['/a/*']}], ", "except: {hosts: [example.com], methods: [GET]}, ", "except: {networks: [b]}, "),
			one("characteristics", characteristics...))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rules, err := rulefile.Load(file)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		bits := rule.ClientPrefix{IPv4: rapid.SampledFrom([]int{0, 24}).Draw(t, "IPv4"), IPv6: rapid.SampledFrom([]int{0, 48, 128}).Draw(t, "IPv6")}
		request := func() judge.Properties {
			p := judge.Properties{
				Addr:   netip.MustParseAddr(one("address", "192.0.2.1", "192.0.2.2", "198.51.100.1", "::ffff:192.0.2.1", "64:ff9b::c000:201", "64:ff9b::1:c000:201", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "2001:db9::1")),
				Method: one("method", "GET", "get", "POST", "Purge", "purge"),
				Host:   one("host", "example.com", "EXAMPLE.com:80", "a.example.com.", "x.b.example.com", "[2001:DB8:0::1]:443", "other"),
			}
			segments := rapid.SliceOfN(rapid.SampledFrom([]string{"login", "LOGIN", "a", "api", "b", "..", ".", "%2e", ".%2E", "", "x;y=1", "login;v", "%6Cogin", "%zz", `a\b`, `\..`, "ſ", "\xff", "%3B", "*"}), 0, 4).Draw(t, "segments")
			p.Target = "/" + strings.Join(segments, "/")
			if query := one("query", "", "user=a", "user=a&user=b", "%75ser=a&user=%61", "user=1&user=2&user=3&user=4&user=5", "user", "user=a+b&&x=y"); query != "" {
				p.Target += "?" + query
			}
			for range rapid.IntRange(0, 3).Draw(t, "header lines") {
				p.Header = append(p.Header, [2]string{"X-Key", one("value", "a", "b", "", "a, b")})
			}
			for range rapid.IntRange(0, 2).Draw(t, "cookie lines") {
				p.Header = append(p.Header, [2]string{"Cookie", one("cookie", "sid=a", `sid="a"; x=y`, "sid=b; sid=a", "SID=c", "x; sid = a ", "sid=%61", `sid="\141"; sid="\a%62"`, "sid=a+%2B; sid=a\xa0", "sid=%2561; sid=%zz")})
			}
			return p
		}
		p, q := request(), request()
		a, b := judge.KeysOf(p, rules, bits, 0), judge.KeysOf(q, rules, bits, 0)
		x, y := nodeKeys(rules, p, bits), nodeKeys(rules, q, bits)
		if len(a) != len(x) || len(b) != len(y) || common(a, b) != common(x, y) {
			t.Errorf("%s\n%q\n%q\nkeys %q and %q, %d in common\nnodes' keys %q and %q, %d in common", text, p, q, a, b, common(a, b), x, y, common(x, y))
		}
	})
}

// nodeKeys returns the keys under which nodes count a request.
func nodeKeys(rules *rule.Set, p judge.Properties, bits rule.ClientPrefix) (list []string) {
	path, query, _ := strings.Cut(p.Target, "?")
	req := rule.Request{Addr: p.Addr, Method: p.Method, Host: p.Host, Path: path, Query: query, Header: http.Header{}}
	for _, h := range p.Header {
		req.Header[h[0]] = append(req.Header[h[0]], h[1])
	}
	req.Canonicalize(bits)
	for _, r := range rules.Match(&req, nil) {
		keys := r.Keys(nil, &req)
		for i := range keys.Len() {
			list = append(list, string(keys.At(i)))
		}
	}
	return list
}

func common(a, b []string) (n int) {
	for _, k := range a {
		if slices.Contains(b, k) {
			n++
		}
	}
	return n
}

// A rule with a setting that the judge does not know is not judged.
func TestUnknownRules(t *testing.T) {
	plain := rule.Rule{
		ID: "a", Characteristics: []rule.Characteristic{{Kind: rule.IP}}, Limits: []rule.Limit{{Threshold: 5}}, Response: &rule.Response{Body: "no"},
	}
	for name, change := range map[string]func(r *rule.Rule){
		"":       func(*rule.Rule) {},
		"action": func(r *rule.Rule) { r.Action = rule.Action(len(rule.ActionNames())) },
		"characteristic": func(r *rule.Rule) {
			r.Characteristics = []rule.Characteristic{{Kind: rule.Kind(len(rule.KindNames()))}}
		},
		"the origin's response": func(r *rule.Rule) { r.CostHeader = "X-Cost" },
		"estimate":              func(r *rule.Rule) { r.Limits = []rule.Limit{{Estimate: counter.WeightedRounded + 1}} },
		"conditions about":      func(r *rule.Rule) { r.Except = []rule.Match{{Conditions: make([]rule.Condition, 1)}} },
		"path_reading":          func(r *rule.Rule) { r.PathSyntax.Reading = rule.ReadURL + 1 },
		"a shadow_ban without":  func(r *rule.Rule) { r.Action, r.Response = rule.ShadowBan, &rule.Response{} },
	} {
		r := plain
		change(&r)
		got := judge.Unknown(&r)
		if !strings.HasPrefix(got, name) || name == "" && got != "" {
			t.Errorf("Unknown() = %q, want prefix %q", got, name)
		}
	}
	for i, action := range rule.ActionNames() {
		r := plain
		if r.Action = rule.Action(i); judge.Unknown(&r) != "" {
			t.Errorf("action %s is not judged: see answer.go", action)
		}
	}
	for kind := rule.IP; int(kind) < len(rule.KindNames()); kind++ {
		r := plain
		r.Characteristics = []rule.Characteristic{{Kind: kind}}
		if judge.Unknown(&r) != "" || (judge.Width(&r) == 0) != (r.Width() == 0) {
			t.Errorf("characteristics of the kind %s are not judged, or their width is wrong: see match.go", kind)
		}
	}
}

// Rules by label are judged.
func TestLabelsAreJudged(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"labels.txt": "192.0.2.0/24 one\n",
		"rules.yaml": "rules: [{id: a, characteristics: ['label:by'], limits: [{threshold: 5, period: 1m}]}]\nlabels: {by: {file: labels.txt}}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := judge.Unknown(rules.Rules()[0]); got != "" {
		t.Errorf("Unknown() = %q, want nothing", got)
	}
}

// Values in overrides files are normalized like those of requests, whatever else the rule matches.
func TestOverridesAreNormalized(t *testing.T) {
	for _, test := range []struct{ characteristic, value string }{
		{"ip", "::ffff:192.0.2.1"}, {"ip", "64:ff9b::192.0.2.1"}, {"network:24/48", "192.0.2.0/24"}, {"host", "EXAMPLE.com."}, {"method", "get"}, {"path", "/LOGIN/"}, {"header:x-key", "a"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"plans.csv":  test.characteristic + ",1m\n" + test.value + ",20\n",
			"rules.yaml": "rules: [{id: a, match: {hosts: [example.com], methods: [GET]}, characteristics: ['" + test.characteristic + "'], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rules, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		p := judge.Properties{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.com", Target: "/login", Header: [][2]string{{"X-Key", "a"}}}
		got, err := judge.Overrides(rules.Rules()[0])
		if want := judge.KeysOf(p, rules, rule.ClientPrefix{}, 0); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s %s: keys %q, %v; want %q", test.characteristic, test.value, got, err, want)
		}
	}
}

// The judge knows every field of a rule, or may ignore it. A new field must be judged, or make its rules unknown.
func TestFieldsAreKnown(t *testing.T) {
	known := strings.Fields(`ID Index File Line Match Except Hosts Methods Paths Networks Conditions PathSyntax Statuses Cost CostHeader CostJSON Reserve
		Characteristics Limits Overrides MitigationTimeout CountWhileMitigated CountRefused MinClients Action Response HidesQuota OnFailure Threshold
		Period SubWindows Estimate Kind Name Skip First Labels Reading ExactCase ExactSlash ExactParameters`)
	for _, value := range []any{rule.Rule{}, rule.Match{}, rule.PathSyntax{}, rule.Characteristic{}, rule.Limit{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(value)) {
			if f.IsExported() && !slices.Contains(known, f.Name) {
				t.Errorf("%T.%s is neither judged nor unknown", value, f.Name)
			}
		}
	}
}
