package rule_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/edgelimit/edge/rule"
	"pgregory.net/rapid"
)

// An origin is a server that routes by path, written from its documentation.
type origin struct {
	name    string
	setting string                     // what a rule's match says about it
	route   func(target string) string // what it answers target as
}

// merged replaces each run of slashes in p with one slash.
func merged(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// unescape decodes once. Invalid escapes stay.
func unescape(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if c, err := strconv.ParseUint(rest[:min(2, len(rest))], 16, 8); err == nil && len(rest) >= 2 {
			b.WriteByte(byte(c))
			s = rest[2:]
		} else {
			b.WriteByte('%')
			s = rest
		}
	}
}

// dots resolves dot segments of an absolute path, which may have empty segments.
func dots(p string) string {
	var kept []string
	segments := strings.Split(p, "/")[1:]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}

func ignoringSlash(p string) string {
	if p == "/" {
		return p
	}
	return strings.TrimSuffix(p, "/")
}

// withoutParameters returns p without what follows a semicolon in a segment.
func withoutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

var escapedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// whatwg returns the pathname of new URL(target, "http://origin").
func whatwg(target string) string {
	p := strings.ReplaceAll(target, `\`, "/")
	if strings.HasPrefix(p, "//") {
		_, rest, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
		p = "/" + rest
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if bare := escapedDots.Replace(s); bare == "." || bare == ".." {
			segments[i] = bare
		}
	}
	return dots(strings.Join(segments, "/"))
}

var origins = []origin{
	{"nginx", "path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: resolved", func(target string) string {
		return dots(merged(unescape(target)))
	}},
	{"Go", "path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: literal", unescape},
	{"Rails", "path_case: exact, path_parameters: exact, path_reading: literal", func(target string) string {
		return ignoringSlash(merged(unescape(target)))
	}},
	{"Express", "path_parameters: exact, path_reading: literal", func(target string) string {
		return strings.ToLower(ignoringSlash(target))
	}},
	{"Spring by segments", "path_case: exact, path_reading: literal", func(target string) string {
		return ignoringSlash(unescape(withoutParameters(target)))
	}},
	{"Tomcat", "path_case: exact, path_trailing_slash: exact, path_reading: resolved", func(target string) string {
		p := strings.ReplaceAll(unescape(withoutParameters(target)), `\`, "/")
		return dots(merged(p))
	}},
	{"IIS", "path_parameters: exact, path_reading: resolved", func(target string) string {
		p := strings.ReplaceAll(unescape(target), `\`, "/")
		return strings.ToLower(ignoringSlash(dots(merged(p))))
	}},
	{"Kestrel", "path_parameters: exact, path_reading: url", func(target string) string {
		if strings.HasPrefix(target, "//") || strings.Contains(target, `\`) {
			return "" // not a path that it routes
		}
		return strings.ToLower(ignoringSlash(unescape(whatwg(target))))
	}},
	{"new URL", "path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: url", whatwg},
	{"a router behind new URL", "path_parameters: exact, path_reading: url", func(target string) string {
		return strings.ToLower(ignoringSlash(unescape(whatwg(target))))
	}},
}

// pieces are parts of targets that attackers use.
var pieces = []string{"/", "/login", "/LoGin", "/%6Cogin", "login", "/api", "/.", "/..", "/%2e", "%2E", "%2f", "%5C", `\`, ";x", "%3b", "//localhost", "/x"}

// evades reports whether a rule does not match a request, or does not count it together with requests
// for the path that the origin serves.
func evades(set *rule.Set, target, as string) bool {
	ask := func(path string) (matched bool, keys []string) {
		req := rule.Request{Path: path}
		req.Canonicalize(rule.ClientPrefix{})
		rules := set.Match(&req, nil)
		if len(rules) == 0 {
			return false, nil
		}
		return true, keysOf(rules[0], req)
	}
	_, plain := ask(as)
	matched, keys := ask(target)
	for _, k := range keys {
		if k == plain[0] {
			return false
		}
	}
	return !matched || len(keys) > 1 || !strings.Contains(keys[0], "\xff\xff\xff\xff") // unless there are too many
}

// A rule for /login matches everything that an origin answers as /login, and a rule for /api/* everything
// that it answers as something below /api: by default, and with the settings for the origin.
func TestNoTargetEvadesARuleForAPath(t *testing.T) {
	routed := map[string]int{}
	sets := map[string][2]*rule.Set{}
	for _, o := range origins {
		for i, setting := range []string{"path_reading: any", o.setting} {
			pair := sets[o.name]
			pair[i] = parse(t, fmt.Sprintf("rules: [{id: a, characteristics: [path], limits: [{threshold: 5, period: 1m}], match: {paths: [/login, /api/*], %s}}]", setting))
			sets[o.name] = pair
		}
	}
	try := func(t interface{ Errorf(string, ...any) }, target string) {
		sent := rule.Request{Path: target}
		if sent.Canonicalize(rule.ClientPrefix{}); sent.Malformed {
			return // see TestTooManySegments
		}
		for _, o := range origins {
			as := o.route(target)
			if as != "/login" && !strings.HasPrefix(as, "/api/") {
				continue
			}
			routed[o.name+" "+as[:5]]++
			for i, set := range sets[o.name] {
				if as != "/login" { // what follows /api/ may still be spelled in another way
					req := rule.Request{Path: target}
					req.Canonicalize(rule.ClientPrefix{})
					if len(set.Match(&req, nil)) == 0 {
						t.Errorf("%s answers %s as %s; a rule for /api/* does not match it (%s)", o.name, target, as, []string{"by default", o.setting}[i])
					}
				} else if evades(set, target, as) {
					t.Errorf("%s answers %s as %s; a rule for /login does not count it (%s)", o.name, target, as, []string{"by default", o.setting}[i])
				}
			}
		}
	}
	var all func(target string, more int)
	all = func(target string, more int) {
		if strings.HasPrefix(target, "/") {
			try(t, target)
		}
		if more > 0 && !t.Failed() {
			for _, p := range pieces {
				all(target+p, more-1)
			}
		}
	}
	all("", 4)
	rapid.Check(t, func(t *rapid.T) {
		for range 30 {
			try(t, "/"+strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 4, 9).Draw(t, "pieces"), ""))
		}
	})
	for _, o := range origins {
		for _, path := range []string{"/login", "/api/"} {
			if n := routed[o.name+" "+path[:5]]; n < 3 {
				t.Errorf("%s answers only %d targets as %s, too few to test anything", o.name, n, path)
			}
		}
	}
}

// If settings say that an origin distinguishes paths, requests for other paths are not counted.
func TestExactPathsMatchNothingElse(t *testing.T) {
	exact := "path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: resolved"
	for _, test := range []struct {
		setting string
		others  []string // paths other than /login
	}{
		{exact, []string{"/LOGIN", "/login/", "/login;x=1", "//localhost/login", "/login/x", "/login%3Bx", "/LOGIN/../x"}},
		{"path_case: exact", []string{"/LOGIN", "/%4Cogin", "/Login/", "/logi"}},
		{"path_trailing_slash: exact", []string{"/login/", "/LOGIN/", "/login/;x", "/login//", "/login%2f"}},
		{"path_parameters: exact", []string{"/login;x=1", "/login;/", "/;x/login", "/login%3Bx"}},
		{"path_reading: resolved", []string{"//localhost/login", "/login/../x", "/login/.."}},
		{"path_reading: literal", []string{"//localhost/login", "/x/../login", `/x\..\login`, "/./login"}},
		{"path_reading: url", []string{"/localhost/login", "/login/../x", "/x//../login"}},
	} {
		set := parse(t, withKeys("match: {paths: [/login], "+test.setting+"}"))
		for _, path := range test.others {
			req := rule.Request{Path: path}
			req.Canonicalize(rule.ClientPrefix{})
			if len(set.Match(&req, nil)) > 0 {
				t.Errorf("%s: a rule for /login matches %s", test.setting, path)
			}
		}
		req := rule.Request{Path: "/login"}
		req.Canonicalize(rule.ClientPrefix{})
		if len(set.Match(&req, nil)) != 1 {
			t.Errorf("%s: a rule for /login does not match /login", test.setting)
		}
	}
}

// Rules that read paths in different ways do not mix them up.
func TestEachRuleReadsPathsItsOwnWay(t *testing.T) {
	text := "rules:\n"
	for _, reading := range []string{"any", "resolved", "literal", "url", "any", "literal"} {
		text += fmt.Sprintf("- {id: %s%d, characteristics: [path], limits: [{threshold: 5, period: 1m}], match: {paths: [/login], path_reading: %s}}\n", reading, len(text), reading)
	}
	set := parse(t, text)
	for path, want := range map[string]string{
		"/login":            "any resolved literal url any literal",
		"//localhost/login": "any url any",
		"/x/../login":       "any resolved url any",
		"/login/x/..":       "any resolved url any",
		"/login/../x":       "",
	} {
		var got []string
		for _, id := range matched(set, "GET", "a", path) {
			got = append(got, strings.TrimRight(id, "0123456789"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is matched by %q, want %q", path, got, want)
		}
	}
}

// A rule with paths counts a request by those forms of its path that it matches.
func TestUnmatchedPathsHaveNoKey(t *testing.T) {
	set := parse(t, "rules: [{id: a, characteristics: [path], limits: [{threshold: 5, period: 1m}], match: {paths: [/login]}}]")
	r := set.Rules()[0]
	for path, want := range map[string]string{"//localhost/login": "/login", "/login/a/..": "/login", "/a/../login": "/login"} {
		if got, want := keysOf(r, rule.Request{Path: path}), keysOf(r, rule.Request{Path: want}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the keys of %s are %q, want %q", path, got, want)
		}
	}
	if got := keysOf(r, rule.Request{Path: "//localhost/login"}); len(got) != 1 {
		t.Errorf("//localhost/login has %d keys, want that of /login", len(got))
	}
}

// Letters that some origin treats as equal have the same lower case.
func TestPathCaseOfAllLetters(t *testing.T) {
	r := keyed(t, "[path]")
	of := func(c rune) string { return keysOf(r, rule.Request{Path: "/" + url.PathEscape(string(c))})[0] }
	for c := rune(0x80); c <= unicode.MaxRune; c++ {
		if !unicode.IsLetter(c) {
			continue
		}
		for _, same := range []rune{unicode.ToUpper(c), unicode.ToLower(c)} {
			if same != c && of(same) != of(c) {
				t.Errorf("/%c and /%c have different keys", c, same)
			}
		}
	}
}

// Canonicalize reads the path as received, even if it is called again.
func TestCanonicalizeTwice(t *testing.T) {
	r := keyed(t, "[path]")
	for _, path := range []string{"//localhost/login", "/%2541", "/a/../b", `/a\b`, "/x;y", "*", "", "x"} {
		req := rule.Request{Path: path, Method: "get"}
		req.Canonicalize(rule.ClientPrefix{})
		once, keys := req.Path, keysOf(r, rule.Request{Path: path})
		req.Canonicalize(rule.ClientPrefix{})
		if again := keysOf(r, req); req.Path != once || fmt.Sprint(again) != fmt.Sprint(keys) {
			t.Errorf("path %q becomes %q, with the keys %q, then %q, with the keys %q", path, once, keys, req.Path, again)
		}
	}
}

// A rule with default settings matches everything that it matches with others, and no path has more
// than the maximum number of keys.
func FuzzDefaultsMatchWhatSettingsMatch(f *testing.F) {
	var sets []*rule.Set
	for _, reading := range []string{"any", "resolved", "literal", "url"} {
		for i := range 8 {
			exact := func(bit int) string { return []string{"ignore", "exact"}[i>>bit&1] }
			sets = append(sets, parse(f, fmt.Sprintf("rules: [{id: a, characteristics: [path], limits: [{threshold: 5, period: 1m}], match: "+
				"{paths: [/login, /api/*, /d/], path_reading: %s, path_case: %s, path_trailing_slash: %s, path_parameters: %s}}]", reading, exact(0), exact(1), exact(2))))
		}
	}
	for _, path := range append(pieces, "", "*", "//localhost/login", "/api/..;/x", `/d/\../`, "/login;%2f/..", "/K\u212a\xff", "/a/../b/..//../;x/%2e%5C..") {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		matches := func(set *rule.Set) bool {
			req := rule.Request{Path: path}
			req.Canonicalize(rule.ClientPrefix{})
			rules := set.Match(&req, nil)
			if len(rules) > 0 {
				if n := len(keysOf(rules[0], rule.Request{Path: path})); n == 0 || n > rule.MaxKeys {
					t.Errorf("%q has %d keys", path, n)
				}
			}
			return len(rules) > 0
		}
		byDefault := matches(sets[0])
		for _, set := range sets[1:] {
			if !byDefault && matches(set) {
				t.Errorf("%q is matched by %+v, not by default", path, set.Rules()[0].PathSyntax)
			}
		}
	})
}

// The more ways there are in which origins may read a path, the shorter is its maximum length.
func TestLengthOfPaths(t *testing.T) {
	for begin, ways := range map[string]int{"/a/": 0, "//": 2, "/;": 3, "//;": 4, `/\`: 5} {
		bound := rule.MaxPath
		if ways > 0 {
			bound = rule.MaxOddPath / ways
		}
		for more, want := range []bool{false, true} {
			path := begin + strings.Repeat("a", bound-len(begin)+more)
			req := rule.Request{Method: "GET", Host: "example.com", Path: path}
			if req.Canonicalize(rule.ClientPrefix{}); req.Malformed != want {
				t.Errorf("a path of %d bytes that begins with %s: malformed %t, want %t", len(path), begin, req.Malformed, want)
			}
		}
	}
}

// What a byte means does not depend on where it is among the eight that are read at a time.
func TestEachByteOfAPath(t *testing.T) {
	const x = "xxxxxxxxxxxxxxxxxxxx"
	for n := range len(x) {
		before, after := "/"+x[n:], x[:n]
		set := parse(t, "rules: [{id: a, match: {paths: ['"+before+"', '"+before+"/"+after+"']}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]")
		for c := range 256 {
			byItself := string([]byte{byte(c)})
			for _, text := range []string{byItself, fmt.Sprintf("%%%02X", c)} {
				req := rule.Request{Method: "GET", Host: "example.com", Path: before + text + after}
				req.Check()
				req.Canonicalize(rule.ClientPrefix{})
				bad, separates := strings.Contains("%#\x7f", text) || len(text) == 1 && c <= ' ', strings.Contains(`/\;`, byItself)
				if req.Malformed != bad || !bad && (len(set.Match(&req, nil)) > 0) != separates {
					t.Errorf("%q: malformed %t, want %t; matched %v, want %t", before+text+after, req.Malformed, bad, set.Match(&req, nil), separates)
				}
				if want := before + byItself + after; !bad && !separates && req.Path != want {
					t.Errorf("%q is %q", want, req.Path)
				}
			}
		}
	}
}
