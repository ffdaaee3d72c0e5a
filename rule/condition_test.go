package rule_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
)

// A failer is a test or a check of a property.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// matching parses a rule with some keys, and returns a function that reports whether it matches a request.
func matching(t failer, keys string) func(target string, header ...string) bool {
	t.Helper()
	set := parse(t, "rules:\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}], "+keys+"}\n")
	return func(target string, header ...string) bool {
		req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}
		req.Admit("GET", "example.com", target)
		if set.ReadsFields() {
			req.Header = map[string][]string{}
		}
		for i := 0; i < len(header); i += 2 {
			set.AddField(req.Header, header[i], header[i+1])
		}
		req.Canonicalize(rule.ClientPrefix{})
		return len(set.Match(&req, nil)) == 1
	}
}

func TestConditions(t *testing.T) {
	lines := func(name string, values ...string) (header []string) {
		for _, v := range values {
			header = append(header, name, v)
		}
		return header
	}
	many := strings.Split("a b c d e f g h i", " ")
	a := func(n int) string { return strings.Repeat("a", n) }
	cookies := func(n int) string { return strings.Repeat("x=1; ", n) }
	for _, test := range []struct {
		keys, target string
		header       []string
		want         bool
	}{
		{"match: {headers: {user-agent: ['curl*', '*python*']}}", "/", lines("User-Agent", "CURL/8"), true},
		{"match: {headers: {user-agent: ['curl*', '*python*']}}", "/", lines("user-agent", "a Python b"), true},
		{"match: {headers: {user-agent: ['curl*', '*python*']}}", "/", lines("User-Agent", "Mozilla curl"), false},
		{"match: {headers: {user-agent: ['curl*', '*python*']}}", "/", nil, false},
		{"match: {headers: {user-agent: 'curl*'}}", "/", lines("User_Agent", "curl"), true}, // as CGI reads it
		{"match: {headers: {authorization: absent}}", "/", nil, true},
		{"match: {headers: {authorization: absent}}", "/", lines("Authorization", ""), false},
		{"match: {headers: {authorization: present}}", "/", lines("Authorization", ""), true},
		{"match: {headers: {authorization: 'bearer a'}}", "/", lines("Authorization", "bEARER  A"), true},
		{"match: {headers: {authorization: 'basic alice:*'}}", "/", lines("Authorization", "Basic YWxpY2U6cHc="), true},
		{"match: {headers: {authorization: 'basic alice:*'}}", "/", lines("Authorization", "Basic YWxpY2U6cHc=A"), true},
		{"except: {headers: {authorization: 'basic alice:*'}}", "/", lines("Authorization", "Basic YWxpY2U6cHc=A"), true},
		{"match: {headers: {x: '~^a+$'}}", "/", lines("X", "AAA"), true},
		{"match: {headers: {x: '~a'}}", "/", lines("X", "b", "bab"), true},
		{"match: {headers: {x: absent}, query: {a: present}}", "/?a", nil, true},
		{"match: {headers: {x: absent}, query: {a: present}}", "/?b", nil, false},
		{"match: {query: {export: '1'}}", "/?%65xport=%31", nil, true},
		{"match: {query: {export: 'A*'}}", "/?export=a", nil, false},
		{"match: {query: {export: '1'}}", "/?export[]=1", nil, true}, // as PHP reads it
		{"match: {cookies: {beta: '1'}}", "/", lines("Cookie", `a=b; beta="1"`), true},
		{"match: {cookies: {beta: '1'}}", "/", lines("Cookie", "Beta=1"), false},
		{"except: {cookies: {beta: '1'}}", "/", lines("Cookie", "beta=1"), false},
		{"except: {cookies: {beta: '1'}}", "/", lines("Cookie", "beta=1; beta=2"), true},
		{"except: {cookies: {beta: '1'}}", "/", nil, true},
		{"except: {headers: {x: [a, b]}}", "/", lines("X", "a", "b"), false},
		{"except: {headers: {x: [a, b]}}", "/", lines("X", "a", "c"), true},
		{"except: {headers: {x: absent}}", "/", nil, false},
		{"except: {headers: {x: present}, paths: [/a]}", "/a", lines("X", "a"), false},
		{"except: {headers: {x: present}, paths: [/a]}", "/b", lines("X", "a"), true},

		// Values that are not read may match what a match names, and differ from what an exception names.
		{"match: {cookies: {x: '2'}}", "/", lines("Cookie", cookies(8)), false},
		{"match: {cookies: {x: '2'}}", "/", lines("Cookie", cookies(9)), true},
		{"except: {cookies: {x: '1'}}", "/", lines("Cookie", cookies(8)), false},
		{"except: {cookies: {x: '1'}}", "/", lines("Cookie", cookies(9)), true},
		{"match: {cookies: {x: absent}}", "/", lines("Cookie", cookies(9)), false},
		{"except: {cookies: {x: present}}", "/", lines("Cookie", cookies(9)), false},
		{"match: {cookies: {y: present}}", "/", lines("Cookie", cookies(257)), true},
		{"match: {cookies: {y: absent}}", "/", lines("Cookie", cookies(257)), true},
		{"except: {cookies: {y: absent}}", "/", lines("Cookie", cookies(257)), true},
		{"match: {headers: {x: i}}", "/", lines("X", many...), true},
		{"match: {headers: {x: j}}", "/", lines("X", many[:8]...), false},
		{"match: {headers: {x: j}}", "/", lines("X", many...), true},
		{"match: {headers: {x: b}}", "/", lines("X", a(4096)), false},
		{"match: {headers: {x: b}}", "/", lines("X", "c", a(4097)), true},
		{"except: {headers: {x: 'a*'}}", "/", lines("X", a(4096)), false},
		{"except: {headers: {x: 'a*'}}", "/", lines("X", a(4097)), true},
		{"except: {headers: {x: present}}", "/", lines("X", a(4097)), false},
		{"match: {headers: {x: absent}}", "/", lines("X", a(4097)), false},

		// All expressions together read 4096 bytes beyond the first 256 of each value.
		{"match: {headers: {x: ['~b', '~c']}}", "/", lines("X", a(1280), a(1279), a(256)), false},
		{"match: {headers: {x: ['~b', '~c']}}", "/", lines("X", a(1280), a(1279), a(258)), true},
		{"match: {headers: {x: ['~b', '~c']}}", "/", lines("X", a(2305)), true},
		{"match: {headers: {x: ['b', '~c', 'd']}}", "/", lines("X", a(4096)), false},
		{"match: {headers: {x: '~a'}, query: {q: '~b'}}", "/?q=" + a(2304), lines("X", a(2304)), false},
		{"match: {headers: {x: '~a'}, query: {q: '~b'}}", "/?q=" + a(2305), lines("X", a(2304)), true},
		{"match: {headers: {x: '~a'}, cookies: {c: b}}", "/", lines("X", a(4096), "Cookie", "c=c"), false},
		{"except: {headers: {x: '~a'}}", "/", lines("X", a(4096), a(512)), false},
		{"except: {headers: {x: '~a'}}", "/", lines("X", a(4096), a(513)), true},
	} {
		if got := matching(t, test.keys)(test.target, test.header...); got != test.want {
			t.Errorf("%s matches %s %.80q: %t, want %t", test.keys, test.target, test.header, got, test.want)
		}
	}
}

func TestPathsWithStars(t *testing.T) {
	for _, test := range []struct {
		paths, yes, no string
	}{
		{"/users/*/login", "/users/1/login /USERS/ab/Login/ /x/../users/1/login /users/1;x/login /users/*/login", "/users/login /users/1/2/login /users/1/login/x /users/1/logins"},
		{"/a*c/b", "/ac/b /abc/b /acc/b", "/a/c/b /ac/c"},
		{"/*/x/*", "/1/x /1/x/ /1/x/y/z /2/x/x", "/x /1/xy /1/2/x"},
		{"/*a/b*", "/a/b /ba/bc/d /aba/b", "/ab/b /a/c"},
		{"'*.php'", "/x.php /a/b.PHP /a/.php/ /a.php.php /x.php;a=b", "/x.php/a /x.phps /php"},
		{"'*a*b'", "/ab /x/cacb /aab", "/ba /a/b"},
		{"'*'", "/ /a/b", ""},
	} {
		matches := matching(t, "match: {paths: ["+test.paths+"]}")
		for want, list := range map[bool]string{true: test.yes, false: test.no} {
			for path := range strings.FieldsSeq(list) {
				if got := matches(path); got != want {
					t.Errorf("%s matches %s: %t, want %t", test.paths, path, got, want)
				}
			}
		}
	}
	if exact := matching(t, "match: {paths: ['/*/x/*'], path_case: exact, path_trailing_slash: exact}"); exact("/1/x") || exact("/1/X/") || !exact("/1/x/") {
		t.Error("/*/x/* of an exact origin matches /1/x or /1/X/, or not /1/x/")
	}
}

// A reference is a slow reading of conditions, for values that all origins read alike.
type reference struct {
	kind, name string
	want       string // present, absent, or nothing
	patterns   []string
}

func (c *reference) String() string {
	if c.want != "" {
		return fmt.Sprintf("%s: {%s: %s}", c.kind, c.name, c.want)
	}
	return fmt.Sprintf("%s: {%s: ['%s']}", c.kind, c.name, strings.Join(c.patterns, "', '"))
}

func (c *reference) holds(values []string, except bool) bool {
	matching := 0
	for _, v := range values {
		if slices.ContainsFunc(c.patterns, func(pattern string) bool {
			expression, ok := strings.CutPrefix(pattern, "~")
			if !ok {
				expression = "^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + ")$"
			}
			if c.kind == "headers" {
				expression = "(?i)" + expression
			}
			return regexp.MustCompile(expression).MatchString(v)
		}) {
			matching++
		}
	}
	switch {
	case c.want != "":
		return (c.want == "present") == (len(values) > 0)
	case except:
		return matching > 0 && matching == len(values)
	}
	return matching > 0
}

func TestConditionsMatchTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := map[string]string{"headers": "x-a", "cookies": "b", "query": "c"}
		conditions := func(label string) (list []*reference) {
			for _, kind := range []string{"headers", "cookies", "query"} {
				c := &reference{kind: kind, name: names[kind], want: rapid.SampledFrom([]string{"present", "absent", "", "", "leave out"}).Draw(t, label+" "+kind)}
				if c.want == "" {
					c.patterns = rapid.SliceOfNDistinct(rapid.StringMatching(`[abB*]{0,5}|~\^?[abB]{1,2}[+]?\$?`), 1, 3, strings.ToLower).Draw(t, "patterns")
				}
				if c.want != "leave out" {
					list = append(list, c)
				}
			}
			return list
		}
		match, except := conditions("match"), conditions("except")
		text := func(list []*reference) (all string) {
			for _, c := range list {
				all += c.String() + ", "
			}
			return all
		}
		keys := "match: {" + text(match) + "}"
		if len(except) > 0 {
			keys += ", except: {" + text(except) + "}"
		}
		matches := matching(t, keys)
		values := map[string][]string{}
		for _, kind := range []string{"headers", "cookies", "query"} {
			values[kind] = rapid.SliceOfN(rapid.StringMatching(`[abAB]{0,6}`), 0, 6).Draw(t, kind)
		}
		var header []string
		for _, v := range values["headers"] {
			header = append(header, "X-A", v)
		}
		for _, v := range values["cookies"] {
			header = append(header, "Cookie", "z=1; b="+v)
		}
		holds := func(list []*reference, except bool) bool {
			return !slices.ContainsFunc(list, func(c *reference) bool { return !c.holds(values[c.kind], except) })
		}
		want := holds(match, false) && (len(except) == 0 || !holds(except, true))
		if got := matches("/?"+url.Values{"c": values["query"]}.Encode(), header...); got != want {
			t.Fatalf("%s matches %q: %t, want %t", keys, values, got, want)
		}
	})
}

// Overrides and explanations know a request's characteristics, but not its other fields.
func TestRequestFromIgnoresConditions(t *testing.T) {
	set := parse(t, "rules:\n- {id: a, match: {headers: {x: a}}, except: {paths: [/a], headers: {y: absent}}, characteristics: [path], limits: [{threshold: 5, period: 1m}]}\n")
	req, err := set.Rules()[0].RequestOf("/a")
	if err != nil {
		t.Fatal(err)
	}
	req.Canonicalize(rule.ClientPrefix{})
	got, _ := set.Rules()[0].AppendKey(nil, &req)
	sent := rule.Request{Path: "/a", Header: http.Header{"X": {"a"}, "Y": {"b"}}}
	sent.Canonicalize(rule.ClientPrefix{})
	if want, counted := set.Rules()[0].AppendKey(nil, &sent); !counted || string(got) != string(want) {
		t.Errorf("the key of /a is %q, want %q", got, want)
	}
}

// threeConditions is a rule with three conditions about headers.
const threeConditions = `match: {headers: {user-agent: ["curl*", "*python*"], authorization: absent, accept: ["*/*"]}}`

func browserless() *rule.Request {
	req := request("example.com")
	req.Header["User-Agent"] = []string{"Mozilla/5.0 (compatible; crawler; +https://example.com/crawler) Python-urllib/3.12"}
	req.Header["Accept"] = []string{"*/*"}
	return req
}

func TestConditionsAllocateNothing(t *testing.T) {
	if !harness.WithoutRaceDetector(t) { // with it, a sync.Pool drops buffers
		return
	}
	set := parse(t, "rules:\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}], "+threeConditions+
		", except: {paths: ['/*/x', '*.php'], cookies: {theme: present}, query: {page: '~^[0-9]$'}}}\n")
	req, rules := browserless(), make([]*rule.Rule, 0, 8)
	req.Header["User-Agent"][0] += strings.Repeat(" and more", 100)
	req.Path += ".php"
	req.Canonicalize(rule.ClientPrefix{})
	if n := testing.AllocsPerRun(100, func() { set.Match(req, rules) }); n != 0 {
		t.Errorf("Match allocates %v times, want 0", n)
	}
}

func BenchmarkConditions(b *testing.B) {
	const expression, star = `match: {headers: {user-agent: "~bot|crawl|spider"}}`, `match: {headers: {user-agent: "*python*"}}`
	for _, test := range []struct {
		name, keys, agent string
		want              int
	}{
		{"none", "", "", 1},
		{"three headers", threeConditions, "", 1},
		{"an expression", expression, strings.Repeat("bocraspide", 15), 0},
		{"an expression, 2 KB", expression, strings.Repeat("bocraspide", 200), 0},
		{"an expression, 60 KB", expression, strings.Repeat("bocraspide", 6000), 1},
		{"a star, 4 KB", star, strings.Repeat("p", 4000), 0},
		{"a star, 60 KB", star, strings.Repeat("p", 60000), 1},
	} {
		b.Run(test.name, func(b *testing.B) {
			set := parse(b, "rules:\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}], "+test.keys+"}\n")
			req, rules := browserless(), make([]*rule.Rule, 0, 8)
			if test.agent != "" {
				req.Header["User-Agent"] = []string{test.agent}
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := len(set.Match(req, rules)); got != test.want {
					b.Fatalf("%d rules match, want %d", got, test.want)
				}
			}
		})
	}
}
