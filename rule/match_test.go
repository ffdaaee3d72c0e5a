package rule_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// matched returns the IDs of the rules that match a request, in the order of the file.
func matched(set *rule.Set, method, host, path string) []string {
	req := rule.Request{Method: method, Host: host, Path: path}
	req.Canonicalize(rule.ClientPrefix{})
	var ids []string
	rules := set.Match(&req, nil)
	slices.SortFunc(rules, func(a, b *rule.Rule) int { return a.Index - b.Index })
	for _, r := range rules {
		ids = append(ids, r.ID)
	}
	return ids
}

// A match is a request, and the IDs of the rules that match it.
type match struct{ name, method, host, path, want string }

func checkMatches(t *testing.T, set *rule.Set, tests []match) {
	t.Helper()
	for _, test := range tests {
		if got := strings.Join(matched(set, test.method, test.host, test.path), " "); got != test.want {
			t.Errorf("%s: %s %q %q is matched by %q, want %q", test.name, test.method, test.host, test.path, got, test.want)
		}
	}
}

func TestMatch(t *testing.T) {
	set := parse(t, `
rules:
- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: host, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [example.com]}}
- {id: subdomains, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ["*.example.com"]}}
- {id: deep, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ["*.b.example.com", "*.example.com", x.b.example.com, "[2001:db8::1]"]}}
- {id: com, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ["*.com", other.org]}}
- {id: pair, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ["*.pair.example.org", "*.example.org"]}}
- {id: post, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [methods], methods: [POST, PUT]}}
- {id: login, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [paths], paths: [/login]}}
- {id: api, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [paths], paths: [/api/*, /v1*]}}
- {id: root, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [paths], paths: [/]}}
- {id: dots, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [paths], paths: ["/.*"]}}
- {id: any, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [paths], paths: ["*"]}}
- {id: long, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ["*.longest.example.net"]}}
- {id: exact, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [exact], paths: [/Login, /api/*, "/a;b", /d/],
   path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: resolved}}
`)
	checkMatches(t, set, []match{
		{"no host", "GET", "", "/", "all"},
		{"unknown host", "GET", "example.net", "/", "all"},
		{"host", "GET", "example.com", "/", "all host com"},
		{"host in another spelling", "GET", "EXAMPLE.com.:8443", "/", "all host com"},
		{"subdomain", "GET", "www.example.com", "/", "all subdomains deep com"},
		{"subdomain of a subdomain", "GET", "a.b.c.example.com", "/", "all subdomains deep com"},
		{"host of several wildcards of a rule, found once", "GET", "x.b.example.com", "/", "all subdomains deep com"},
		{"subdomain with an empty label", "GET", ".example.com", "/", "all subdomains deep com"},
		{"end of a name is not a subdomain", "GET", "notexample.com", "/", "all com"},
		{"host with more labels at the end", "GET", "example.com.net", "/", "all"},
		{"top-level domain is not a subdomain of itself", "GET", "com", "/", "all"},
		{"second host of a rule", "GET", "other.org", "/", "all com"},
		{"IPv6 host", "GET", "[2001:DB8::1]:80", "/", "all deep"},
		{"host longer than any name", "GET", strings.Repeat("a.", 300) + "example.com", "/", "all subdomains deep com"},
		{"host longer than any name, of one label", "GET", strings.Repeat("a", 600) + ".com", "/", "all com"},

		{"both wildcards of a rule, found once", "GET", "a.pair.example.org", "/", "all pair"},
		{"longest wildcard, without another of its length", "GET", "a.longest.example.net", "/", "all long"},
		{"shorter wildcard of two", "GET", "a.example.org", "/", "all pair"},

		{"method", "POST", "methods", "/", "all post"},
		{"second method", "PUT", "methods", "/", "all post"},
		{"other method", "GET", "methods", "/", "all"},
		{"method in lower case", "post", "methods", "/", "all post"},
		{"method in lower and upper case", "pOsT", "methods", "/", "all post"},
		{"method that begins like another", "posts", "methods", "/", "all"},
		{"no method", "", "methods", "/", "all"},

		{"path", "GET", "paths", "/login", "all login any"},
		{"path in another spelling", "GET", "paths", "//x/../%6Cogin", "all login any"},
		{"path with a trailing slash", "GET", "paths", "/login/", "all login any"},
		{"path in upper case", "GET", "paths", "/Login", "all login any"},
		{"path with a parameter", "GET", "paths", "/login;x=1", "all login any"},
		{"path with an escaped slash in a parameter", "GET", "paths", "/login;x=%2f", "all login any"},
		{"path after a host", "GET", "paths", "//localhost/login", "all login any"},
		{"path with more letters at the end", "GET", "paths", "/loginx", "all any"},
		{"star stands for nothing", "GET", "paths", "/api/", "all api any"},
		{"star stands for a segment", "GET", "paths", "/api/users", "all api any"},
		{"star crosses slashes", "GET", "paths", "/api/users/1/", "all api any"},
		{"star after a slash, which may be missing", "GET", "paths", "/api", "all api any"},
		{"star after a slash needs a segment to end", "GET", "paths", "/apix", "all any"},
		{"star within a segment", "GET", "paths", "/v1beta/x", "all api any"},
		{"dot segments lead to a path, and may not lead out of one", "GET", "paths", "/api/../login", "all login api any"},
		{"escaped slash is a slash", "GET", "paths", "/api%2Fusers", "all api any"},
		{"root", "GET", "paths", "/", "all root any"},
		{"no path", "GET", "paths", "", "all root any"},
		{"dot file", "GET", "paths", "/.git/config", "all dots any"},
		{"dot segment may be a dot file", "GET", "paths", "/./git", "all dots any"},
		{"path of OPTIONS", "OPTIONS", "paths", "*", "all any"},

		{"exact path", "GET", "exact", "/Login", "all exact"},
		{"exact path in another case", "GET", "exact", "/login", "all"},
		{"exact path with a trailing slash", "GET", "exact", "/Login/", "all"},
		{"exact path with its trailing slash", "GET", "exact", "/d/", "all exact"},
		{"exact path without its trailing slash", "GET", "exact", "/d", "all"},
		{"exact path with a parameter", "GET", "exact", "/Login;x", "all"},
		{"exact path with its parameter", "GET", "exact", "/a;b", "all exact"},
		{"exact path after a host", "GET", "exact", "//localhost/Login", "all"},
		{"star after a slash needs the slash of exact paths", "GET", "exact", "/api", "all"},
		{"dot segments do not lead out of a path that is resolved", "GET", "exact", "/api/../x", "all"},
	})
}

// A request is excepted only if every form of its path is.
func TestExcept(t *testing.T) {
	set := parse(t, `
rules:
- {id: health, characteristics: [ip], limits: [{threshold: 5, period: 1m}], except: {paths: [/health, /static/*]}}
- {id: api, characteristics: [ip, path], limits: [{threshold: 5, period: 1m}], match: {paths: [/api/*]}, except: [{paths: [/api/open/*]}, {methods: [OPTIONS]}]}
- {id: both, characteristics: [ip], limits: [{threshold: 5, period: 1m}], except: {hosts: ["*.example.com", example.org], methods: [GET], paths: [/pictures/*]}}
- {id: exact, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {path_case: exact, path_reading: resolved}, except: {paths: [/Health]}}
`)
	checkMatches(t, set, []match{
		{"nothing excepted", "GET", "", "/", "health both exact"},
		{"an excepted path", "GET", "", "/health", "both exact"},
		{"an excepted path in another spelling", "GET", "", "/x/../HEALTH/;v=1", "health both exact"},
		{"an excepted path in another case", "GET", "", "/Health", "both"},
		{"a path other than an excepted one", "GET", "", "/healthy", "health both exact"},
		{"an excepted prefix", "GET", "", "/static/a.css", "both exact"},
		{"a path that leads out of an excepted prefix", "GET", "", "/static/../login", "health both exact"},
		{"a path that leads out of it for some origins", "GET", "", "/static/..;/login", "health both exact"},
		{"a path that leads out of it by backslashes", "GET", "", "/static/..\\login", "health both exact"},
		{"a path that is excepted once its host is removed", "GET", "", "//evil/health", "health both exact"},
		{"a matched path", "GET", "", "/api/a", "health api both exact"},
		{"an excepted part of it", "GET", "", "/api/open/a", "health both exact"},
		{"the second exception", "OPTIONS", "", "/api/a", "health both exact"},
		{"all of an exception", "get", "www.Example.com:80", "/pictures/a", "health exact"},
		{"its other host", "GET", "example.org", "/pictures/a", "health exact"},
		{"its wildcard without a label", "GET", "example.com", "/pictures/a", "health both exact"},
		{"all but its method", "POST", "example.org", "/pictures/a", "health both exact"},
		{"all but its path", "GET", "example.org", "/a", "health both exact"},
	})
	// A rule that counts by path counts a request only under forms that are not excepted.
	api := set.Rules()[1]
	req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Path: "/api/open/../a"}
	req.Canonicalize(rule.ClientPrefix{})
	if got := api.Keys(nil, &req); got.Len() != 1 {
		t.Errorf("%s is counted under %d keys, want 1", req.Path, got.Len())
	}
	// A request that cannot be matched cannot be excepted.
	if got := set.Match(&rule.Request{Malformed: true}, nil); len(got) != 3 {
		t.Errorf("a malformed request is matched by %d rules, want 3", len(got))
	}
}

func TestMatchAppends(t *testing.T) {
	set := parse(t, withKeys())
	one := set.Rules()[0]
	got := set.Match(&rule.Request{Path: "/"}, []*rule.Rule{nil})
	if len(got) != 2 || got[0] != nil || got[1] != one {
		t.Errorf("Match appending to [nil] = %v, want [nil %p]", got, one)
	}
	if got := new(rule.Set).Match(&rule.Request{Host: "a.b", Path: "/"}, nil); len(got) != 0 {
		t.Errorf("Match of an empty set = %v, want nothing", got)
	}
}

// concerns reports whether r applies to a request, straight from the documentation.
func concerns(r *rule.Rule, req *rule.Request) bool {
	host := len(r.Hosts) == 0
	for _, h := range r.Hosts {
		if strings.HasPrefix(h, "*.") && strings.HasSuffix(req.Host, h[1:]) || h == req.Host {
			host = true
		}
	}
	path := len(r.Paths) == 0
	for _, p := range r.Paths {
		if strings.HasSuffix(p, "*") && strings.HasPrefix(req.Path, p[:len(p)-1]) || p == req.Path {
			path = true
		}
	}
	return host && path && (len(r.Methods) == 0 || slices.Contains(r.Methods, req.Method))
}

func TestMatchFindsWhatASearchFinds(t *testing.T) {
	label := rapid.SampledFrom([]string{"a", "b", "com", "x-y"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".")
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "", "*."}).Draw(t, "wildcard") + name.Draw(t, "name")
	})
	segment := rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/ab", "/.a"})
	glob := rapid.Custom(func(t *rapid.T) string {
		return segment.Draw(t, "path") + rapid.SampledFrom([]string{"", "*"}).Draw(t, "star")
	})
	method := rapid.SampledFrom([]string{"GET", "POST", "PUT"})
	distinct := func(g *rapid.Generator[string]) *rapid.Generator[[]string] {
		return rapid.SliceOfNDistinct(g, 0, 4, rapid.ID)
	}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
			fmt.Fprintf(&text, "- {id: r%d, characteristics: [ip], limits: [{threshold: 5, period: 1m}], match: {", i)
			for _, part := range []struct {
				key  string
				list []string
			}{{"hosts", distinct(pattern).Draw(t, "hosts")}, {"methods", distinct(method).Draw(t, "methods")}, {"paths", distinct(glob).Draw(t, "paths")}} { // as resolved, exactly
				if len(part.list) > 0 {
					fmt.Fprintf(&text, "%s: [\"%s\"], ", part.key, strings.Join(part.list, `", "`))
				}
			}
			text.WriteString("path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: resolved}}\n")
		}
		set, err := rulefile.Parse("r.yaml", []byte(text.String()))
		if err != nil {
			t.Fatalf("Parse(%s) = %v", text.String(), err)
		}
		for range 20 {
			req := rule.Request{Host: name.Draw(t, "host"), Method: method.Draw(t, "method"), Path: segment.Draw(t, "path")}
			req.Canonicalize(rule.ClientPrefix{})
			var want []string
			for _, r := range set.Rules() {
				if concerns(r, &req) {
					want = append(want, r.ID)
				}
			}
			if diff := cmp.Diff(want, matched(set, req.Method, req.Host, req.Path), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s %s%s (-search +Match):\n%s\nin %s", req.Method, req.Host, req.Path, diff, text.String())
			}
		}
	})
}

func TestAccess(t *testing.T) {
	set := parse(t, `
allow: [192.0.2.0/24, 198.51.100.7, "2001:db8:1::/48", "::ffff:203.0.113.0/120"]
deny: [192.0.2.128/25, 198.51.100.0/24, "2001:db8::/32", "2001:db8:1:2::3", "fe80::/10"]
`)
	for _, test := range []struct {
		name, addr string
		want       rule.Access
	}{
		{"on neither list", "203.0.114.1", rule.Unlisted},
		{"allowed", "192.0.2.1", rule.Allowed},
		{"denied part of an allowed network", "192.0.2.200", rule.Denied},
		{"denied", "198.51.100.1", rule.Denied},
		{"allowed address of a denied network", "198.51.100.7", rule.Allowed},
		{"IPv4 in IPv6", "::ffff:192.0.2.200", rule.Denied},
		{"listed as IPv4 in IPv6", "203.0.113.9", rule.Allowed},
		{"both as IPv4 in IPv6", "::ffff:203.0.113.9", rule.Allowed},
		{"IPv6 on neither list", "2001:db9::1", rule.Unlisted},
		{"IPv6 denied", "2001:db8::1", rule.Denied},
		{"IPv6 allowed part of a denied network", "2001:db8:1::1", rule.Allowed},
		{"IPv6 denied address of an allowed part", "2001:db8:1:2::3", rule.Denied},
		{"IPv6 that ends in a listed IPv4", "::192.0.2.200", rule.Unlisted},
		{"zone", "fe80::1%eth0", rule.Denied},
	} {
		if got := set.Access(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s: Access(%s) = %d, want %d", test.name, test.addr, got, test.want)
		}
	}
	if got := set.Access(netip.Addr{}); got != rule.Unlisted {
		t.Errorf("Access of no address = %d, want %d", got, rule.Unlisted)
	}
	if got := parse(t, "rules: []\n").Access(netip.MustParseAddr("192.0.2.1")); got != rule.Unlisted {
		t.Errorf("Access without lists = %d, want %d", got, rule.Unlisted)
	}
	everyone := parse(t, "allow: [192.0.2.1]\ndeny: [0.0.0.0/0]\n")
	for addr, want := range map[string]rule.Access{"192.0.2.1": rule.Allowed, "192.0.2.2": rule.Denied, "::1": rule.Unlisted} {
		if got := everyone.Access(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Access(%s) if all of IPv4 is denied = %d, want %d", addr, got, want)
		}
	}
}

func TestAccessFindsTheLongestPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "IPv6") {
				return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: rapid.Byte().Draw(t, "last")})
			}
			return netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "last")})
		})
		lists := map[netip.Prefix]rule.Access{}
		text := map[rule.Access]string{rule.Allowed: "allow: [", rule.Denied: "deny: ["}
		for range rapid.IntRange(0, 20).Draw(t, "networks") {
			a := addr.Draw(t, "network")
			prefix := netip.PrefixFrom(a, a.BitLen()-rapid.IntRange(0, 8).Draw(t, "host bits")).Masked()
			access := rapid.SampledFrom([]rule.Access{rule.Allowed, rule.Denied}).Draw(t, "access")
			if lists[prefix] == rule.Unlisted {
				lists[prefix] = access
				text[access] += fmt.Sprintf("%q, ", prefix)
			}
		}
		set, err := rulefile.Parse("r.yaml", []byte(text[rule.Allowed]+"]\n"+text[rule.Denied]+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			a := addr.Draw(t, "address")
			want, bits := rule.Unlisted, -1
			for prefix, access := range lists {
				if prefix.Contains(a) && prefix.Bits() > bits {
					want, bits = access, prefix.Bits()
				}
			}
			if got := set.Access(a); got != want {
				t.Fatalf("Access(%v) = %d, want %d of %v", a, got, want, lists)
			}
		}
	})
}
