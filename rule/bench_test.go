package rule_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

const million = 1_000_000

// rulesOnHosts returns a file of n rules, each with its own host.
func rulesOnHosts(n int) []byte {
	var text bytes.Buffer
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - id: rule-%d\n    match: {hosts: [host-%d.example.com], methods: [POST], paths: [/login, /api/*]}\n    characteristics: [ip]\n    limits:\n      - {threshold: %d, period: 1m}\n    mitigation_timeout: 10m\n", i, i, i%50+1)
	}
	return text.Bytes()
}

var millionSet = sync.OnceValues(func() (*rule.Set, error) { return rulefile.Parse("rules.yaml", rulesOnHosts(million)) })

// request returns a typical canonical request to a host.
func request(host string) *rule.Request {
	req := &rule.Request{
		Addr: netip.MustParseAddr("192.0.2.77"), Method: "POST", Host: host, Path: "/api/v1/users/42", Query: "page=2&q=a+b",
		Header: map[string][]string{"X-Api-Key": {"0123456789abcdef"}, "Cookie": {"theme=dark; sid=fedcba9876543210"}},
	}
	req.Canonicalize(rule.ClientPrefix{})
	return req
}

func BenchmarkMatch(b *testing.B) {
	one, err := rulefile.Parse("rules.yaml", rulesOnHosts(1))
	if err != nil {
		b.Fatal(err)
	}
	wildcard, err := rulefile.Parse("rules.yaml", bytes.ReplaceAll(rulesOnHosts(1), []byte("host-0.example.com"), []byte(`"*.example.com"`)))
	if err != nil {
		b.Fatal(err)
	}
	match := func(b *testing.B, set *rule.Set, want int, hosts ...string) {
		requests := make([]*rule.Request, len(hosts))
		for i, host := range hosts {
			requests[i] = request(host)
		}
		var dst [8]*rule.Rule
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if got := set.Match(requests[i], dst[:0]); len(got) != want {
				b.Fatalf("Match of %s = %d rules, want %d", hosts[i], len(got), want)
			}
			if i++; i == len(requests) {
				i = 0
			}
		}
	}
	b.Run("hosts=1/hit", func(b *testing.B) { match(b, one, 1, "host-0.example.com") })
	b.Run("hosts=1/miss", func(b *testing.B) { match(b, one, 0, "other.example.com") })
	b.Run("wildcard/hit", func(b *testing.B) { match(b, wildcard, 1, "host-0.example.com") })
	b.Run("wildcard/miss", func(b *testing.B) { match(b, wildcard, 0, "host-0.example.net") })
	if testing.Short() {
		return
	}
	all, err := millionSet()
	if err != nil {
		b.Fatal(err)
	}
	// Many hosts in turn, so that the caches are as cold as with real traffic.
	var hits, misses []string
	for i := range 100_000 {
		hits = append(hits, "host-"+strconv.Itoa(i*7919%million)+".example.com")
		misses = append(misses, "none-"+strconv.Itoa(i)+".example.com")
	}
	b.Run("hosts=1000000/hit", func(b *testing.B) { match(b, all, 1, hits[0]) })
	b.Run("hosts=1000000/miss", func(b *testing.B) { match(b, all, 0, misses[0]) })
	b.Run("hosts=1000000/hit/spread", func(b *testing.B) { match(b, all, 1, hits...) })
	b.Run("hosts=1000000/miss/spread", func(b *testing.B) { match(b, all, 0, misses...) })
}

func BenchmarkAppendKey(b *testing.B) {
	for _, characteristics := range []string{"[ip]", "[ip, host, path]", "[header:x-api-key]", "[header:authorization]", "[cookie:sid]", "[query:q]"} {
		b.Run(characteristics, func(b *testing.B) {
			r := keyed(b, characteristics)
			req := request("example.com")
			req.Header["Authorization"] = []string{"Bearer 0123456789abcdef"}
			var dst [256]byte
			b.ReportAllocs()
			for b.Loop() {
				if _, counted := r.AppendKey(dst[:0], req); !counted {
					b.Fatal("not counted")
				}
			}
		})
	}
}

func BenchmarkCanonicalize(b *testing.B) {
	for _, test := range []struct {
		name string
		req  rule.Request
	}{
		{"canonical", *request("www.example.com")},
		{"IPv6 client", rule.Request{Addr: netip.MustParseAddr("2001:db8::1"), Host: "www.example.com", Path: "/api/v1/users/42"}},
		{"port", rule.Request{Addr: netip.MustParseAddr("192.0.2.77"), Host: "www.example.com:443", Path: "/api/v1/users/42"}},
		{"upper case and escapes", rule.Request{Addr: netip.MustParseAddr("192.0.2.77"), Host: "WWW.example.com", Path: "/api/v1/us%65rs/../42"}},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := test.req
				req.Canonicalize(rule.ClientPrefix{})
			}
		})
	}
}

// BenchmarkRequest does everything that a decision about a request needs from the package.
func BenchmarkRequest(b *testing.B) {
	set := parse(b, withCharacteristics("[ip]")+"- id: b\n  match: {hosts: [example.net]}\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n")
	received := rule.Request{Addr: netip.MustParseAddr("192.0.2.77"), Method: "GET", Host: "www.example.com", Path: "/api/v1/users/42"}
	var rules [8]*rule.Rule
	var keyBytes [256]byte
	b.ReportAllocs()
	for b.Loop() {
		req := received
		req.Canonicalize(rule.ClientPrefix{})
		for _, r := range set.Match(&req, rules[:0]) {
			if _, counted := r.AppendKey(keyBytes[:0], &req); !counted {
				b.Fatal("not counted")
			}
		}
	}
}

// BenchmarkOddPath reads paths that origins may read in different ways, for a rule with an exception.
func BenchmarkOddPath(b *testing.B) {
	set := parse(b, "rules:\n- {id: a, except: {paths: [/health]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n")
	for name, path := range map[string]string{
		"escapes":    "/a/..;b/" + strings.Repeat("%25", 200),
		"letters":    "/a/..;b/" + strings.Repeat("abc", 200),
		"segments":   "/a/..;b" + strings.Repeat("/.", 15),
		"parameters": "/a/.." + strings.Repeat(";a=b", 100),
	} {
		received := rule.Request{Addr: netip.MustParseAddr("192.0.2.77"), Method: "GET", Host: "www.example.com", Path: path}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var rules [8]*rule.Rule
			for b.Loop() {
				req := received
				req.Identify(rule.ClientPrefix{})
				if len(set.Match(&req, rules[:0])) != 1 {
					b.Fatal("not matched")
				}
			}
		})
	}
}

func BenchmarkAccess(b *testing.B) {
	set := parse(b, "allow: [192.0.2.0/24, \"2001:db8::/32\"]\ndeny: [198.51.100.0/24]\n")
	addr := netip.MustParseAddr("203.0.113.77")
	b.ReportAllocs()
	for b.Loop() {
		if set.Access(addr) != rule.Unlisted {
			b.Fatal("listed")
		}
	}
}

func BenchmarkLoadMillion(b *testing.B) {
	if testing.Short() {
		b.Skip("reads a million rules")
	}
	text := rulesOnHosts(million)
	heap := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	before := heap()
	var kept *rule.Set
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		set, err := rulefile.Parse("rules.yaml", text)
		if err != nil {
			b.Fatal(err)
		}
		kept = set
	}
	b.ReportMetric((heap()-before)/1e6, "MB-kept")
	runtime.KeepAlive(text)
	if n := len(kept.Rules()); n != million {
		b.Fatalf("got %d rules, want %d", n, million)
	}
}

func TestAllocs(t *testing.T) {
	set := parse(t, "rules:\n"+
		"- {id: a, characteristics: [ip, host, path, method, header:x-api-key, cookie:sid, \"query:q r\"], limits: [{threshold: 5, period: 1m}]}\n"+
		"- {id: b, characteristics: [ip, {header: authorization, missing: share}], limits: [{threshold: 5, period: 1m}], match: {hosts: [\"*.example.com\"], methods: [POST], paths: [/api/*]}}\n"+
		"allow: [192.0.2.0/24]\ndeny: [\"2001:db8::/32\"]\n")
	req := request("www.example.com")
	req.Query = "x=1&" + string(bytes.Repeat([]byte("%71"), 200)) + "=2&%71+r=" + string(bytes.Repeat([]byte("%41"), 20))
	rules, keyBytes := make([]*rule.Rule, 0, 8), make([]byte, 0, 1024)
	if got := set.Match(req, rules); len(got) != 2 {
		t.Fatalf("Match = %d rules, want 2", len(got))
	}
	req.Header["Authorization"] = []string{"Basic  YWxp-Y2U6cHc", "bEARER h.p.s"}
	several := map[string][]string{"X-Api-Key": {"a", "b", "a"}}
	ipv6 := netip.MustParseAddr("2001:db8::1")
	for _, test := range []struct {
		name string
		f    func()
	}{
		{"Match", func() { set.Match(req, rules) }},
		{"AppendKey", func() { set.Rules()[0].AppendKey(keyBytes, req) }},
		{"AppendKey of credentials", func() { set.Rules()[1].AppendKey(keyBytes, req) }},
		{"Match and Keys of a path in upper case, with a trailing slash, and of several values", func() {
			r := *req
			r.Method, r.Path, r.Header = "post", "/API/Über/", several
			r.Canonicalize(rule.ClientPrefix{})
			if rules := set.Match(&r, rules); len(rules) != 2 {
				t.Fatalf("Match = %d rules, want 2", len(rules))
			}
			if keys := set.Rules()[0].Keys(keyBytes, &r); keys.Len() != 2 {
				t.Fatalf("there are %d keys, want 2", keys.Len())
			}
		}},
		{"Names", func() { set.Names("a.b.c.example.com") }},
		{"Access", func() { set.Access(req.Addr) }},
		{"Access of IPv6", func() { set.Access(ipv6) }},
		{"Canonicalize", func() {
			r := *req
			r.Canonicalize(rule.ClientPrefix{})
		}},
		{"Canonicalize with a port, IPv6 and a dot file", func() {
			r := rule.Request{Addr: ipv6, Host: "[2001:db8::1]:443", Path: "/.well-known/x/..y"}
			r.Canonicalize(rule.ClientPrefix{IPv6: 56})
		}},
		{"Canonicalize with a percent sign that is not an escape", func() {
			r := rule.Request{Host: "a:80", Path: "/100%"}
			r.Canonicalize(rule.ClientPrefix{})
		}},
	} {
		if got := testing.AllocsPerRun(100, test.f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", test.name, got)
		}
	}
}
