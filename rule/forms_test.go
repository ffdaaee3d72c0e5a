package rule_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/rule"
)

// resolved splits p at slashes and resolves dot segments; empty segments are dropped.
func resolved(p string) string {
	var kept []string
	last := ""
	for last = range strings.SplitSeq(p, "/") {
		switch last {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, last)
		}
	}
	p = "/" + strings.Join(kept, "/")
	if len(kept) > 0 && (last == "" || last == "." || last == "..") {
		p += "/"
	}
	return p
}

// documentedForms returns the forms of a path by the steps in docs/paths.md, in upper and lower case.
func documentedForms(path string, s rule.PathSyntax) (forms []string) {
	strip := withoutParameters
	if s.ExactParameters {
		strip = func(p string) string { return p }
	}
	slashes := func(p string) string { return strings.ReplaceAll(p, `\`, "/") }
	all := map[rule.PathReading][]string{
		rule.ReadResolved: {resolved(unescape(path)), resolved(slashes(unescape(path))), resolved(slashes(unescape(strip(path))))},
		rule.ReadLiteral:  {unescape(strip(path))},
		rule.ReadURL:      {unescape(whatwg("/" + strings.TrimPrefix(slashes(path), "/")))},
	}
	for _, reading := range []rule.PathReading{rule.ReadResolved, rule.ReadLiteral, rule.ReadURL} {
		if s.Reading != rule.ReadAny && s.Reading != reading {
			continue
		}
		for _, form := range all[reading] {
			form = merged("/" + strip(form))
			if !s.ExactSlash {
				form = ignoringSlash(form)
			}
			if !slices.Contains(forms, form) {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// A rule reads paths as the documentation says.
func TestDocumentedForms(t *testing.T) {
	parts := append([]string{";", ";x", "..;", "%", "%3", "a", "B", "..%2f", "%5c..", "..", ".", "é", "%zz"}, pieces...)
	rapid.Check(t, func(t *rapid.T) {
		path := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "path"), "")
		if path == "*" {
			return
		}
		s := rule.PathSyntax{Reading: rule.PathReading(rapid.IntRange(0, 3).Draw(t, "reading")), ExactCase: true,
			ExactSlash: rapid.Bool().Draw(t, "exact slash"), ExactParameters: rapid.Bool().Draw(t, "exact parameters")}
		req := rule.Request{Path: path}
		if req.Identify(rule.ClientPrefix{}); req.Malformed {
			return // see TestTooManySegments
		}
		for range 2 { // the second time from memory
			if got, want := req.Forms(s), documentedForms(path, s); !slices.Equal(got, want) {
				t.Fatalf("%q has the forms %q with %+v, want %q", path, got, s, want)
			}
			req.Forms(rule.PathSyntax{ExactParameters: !s.ExactParameters})
		}
	})
}

// A path that origins read in different ways is malformed if it has too many slashes and backslashes for their number, however
// they are written. Other paths may have as many as fit.
func TestTooManySegments(t *testing.T) {
	r := keyed(t, "[path]")
	for _, test := range []struct {
		part string // repeated after /a
		ways int    // 0 if all origins read it in one way
	}{
		{"/", 2}, {"/.", 2}, {"/%61/..", 2}, {"/b;c", 3}, {"/b;c;d;;;%3b", 3}, {`\b`, 5}, {"%5Cb", 5}, {"/b;c/.", 3}, {`\..`, 5}, {"%2f.", 3},
		{"%2E%2F", 3}, {"/b;c//", 4}, {"/b;c/%2e/%2fd", 4}, {"/b;c%5c%2fd", 5}, {"/b", 0}, {"/%61", 0}, {"%2fb", 0}, {"/.b", 0}, {"/...", 0},
	} {
		each := strings.Count(strings.NewReplacer(`\`, "/", "%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/").Replace(test.part), "/")
		bound := (rule.MaxOddSegments/max(1, test.ways) - 1) / each
		for n, want := range map[int]bool{bound: false, bound + 1: test.ways > 0, 20 * bound: test.ways > 0} {
			path := "/a" + strings.Repeat(test.part, min(n, rule.MaxPath/len(test.part)-1))
			req := rule.Request{Path: path}
			req.Canonicalize(rule.ClientPrefix{})
			if want = want && (n > bound+1 || 1+n*each > rule.MaxOddSegments/test.ways); req.Malformed != want {
				t.Errorf("%d times %q is malformed: %t, want %t", n, test.part, req.Malformed, want)
			}
			if _, err := r.RequestOf(path); (err != nil) != want {
				t.Errorf("%d times %q is the value of a request: %v", n, test.part, err)
			}
		}
	}
}

// However many rules read a path in different ways, it is read only once for each set of parameters, in one allocation.
func TestRulesShareReadings(t *testing.T) {
	req := rule.Request{Path: strings.Repeat("/a;b/../c", 8)}
	for _, rules := range []int{4, 60} {
		got := testing.AllocsPerRun(10, func() {
			r := req
			r.Identify(rule.ClientPrefix{})
			for i := range rules {
				r.Read(rule.PathSyntax{Reading: rule.PathReading(i % 4), ExactCase: i%3 == 0, ExactSlash: i%5 == 0})
			}
		})
		if got != 1 {
			t.Errorf("%d rules allocate %v times for a path, want 1", rules, got)
		}
	}
}

// A rule that has only exceptions needs a single form of a path that no exception matches.
func TestFormsAreMadeWhenNeeded(t *testing.T) {
	for _, test := range []struct {
		match, path string
		want        int
	}{
		{"except: {paths: [/health]}", "/a//b", 1},
		{"except: {paths: [/health]}", "/a;b//c", 1},
		{"except: {paths: [/a/b]}", "/a//b", 5},
		{"match: {paths: [/a/b]}", "/a//b", 5},
		{"match: {paths: [/health]}", "/a/b", 0},
	} {
		set := parse(t, "rules: [{id: a, "+test.match+", characteristics: [ip], limits: [{threshold: 1, period: 1m}]}]")
		req := rule.Request{Path: test.path}
		req.Identify(rule.ClientPrefix{})
		set.Match(&req, nil)
		if got := req.FormsMade(); got != test.want {
			t.Errorf("%s: %d forms of %s were made, want %d", test.match, got, test.path, test.want)
		}
	}
}

// Several long forms count as too many values, so that a request does not cost a key for each.
func TestLongFormsHaveOneKey(t *testing.T) {
	r := keyed(t, "[path]")
	for n, want := range map[int]int{100: 2, 600: 1} {
		req := rule.Request{Path: "/a/../" + strings.Repeat("b", n)}
		req.Canonicalize(rule.ClientPrefix{})
		if keys := r.Keys(nil, &req); keys.Len() != want {
			t.Errorf("a path of %d bytes with two forms has %d keys, want %d", len(req.Path), keys.Len(), want)
		}
	}
}
