package rule_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/rule"
)

// loadWith loads rules and a file plans.csv next to them.
func loadWith(t testing.TB, rules, plans string) *rule.Set {
	t.Helper()
	return load(t, map[string]string{"rules.yaml": rules, "plans.csv": plans})
}

// limitsOf returns the thresholds for each key of a request.
func limitsOf(s *rule.Set, req rule.Request, p rule.ClientPrefix) string {
	req.Canonicalize(p)
	var texts []string
	for _, r := range s.Match(&req, nil) {
		keys := r.Keys(nil, &req)
		for i := range keys.Len() {
			by := r.Override(keys.At(i))
			texts = append(texts, fmt.Sprint(by.Limits[0].Threshold, by.Index, by.Base() == r))
		}
	}
	return strings.Join(texts, ", ")
}

func TestOverrides(t *testing.T) {
	header := func(values ...string) rule.Request {
		return rule.Request{Header: map[string][]string{"X-Key": values}}
	}
	from := func(addr string) rule.Request { return rule.Request{Addr: netip.MustParseAddr(addr)} }
	for _, test := range []struct {
		name, characteristics, plans string
		requests                     []rule.Request
		want                         string
		client                       rule.ClientPrefix
	}{
		{"header", `["header:x-key"]`, "# customers\nheader:x-key,1m\ngold,100\nfree,1\n partner , 3 \n", []rule.Request{header("gold"), header("free"), header("partner"), header("else"), header()},
			"100 0 true; 1 0 true; 3 0 true; 5 0 true; 5 0 true", rule.ClientPrefix{}},
		{"several values", `["header:x-key"]`, "header:x-key,1m\ngold,100\npartner,3\n", []rule.Request{header("gold", "else", "partner")}, "100 0 true, 5 0 true, 3 0 true", rule.ClientPrefix{}},
		{"quotes, and an empty value", `["header:x-key"]`, "\ufeffheader:x-key,1m\r\n\"a,b\"\"c\",7\r\n\"\",8\r\n", []rule.Request{header(`a,b"c`), header("")}, "7 0 true; 8 0 true", rule.ClientPrefix{}},
		{"addresses", "[ip]", "ip,1m\n192.0.2.1,9\n2001:db8::1,8\n2001:db8:1::/64,7\n2001:db8:2::/56,6\n", []rule.Request{from("192.0.2.1"), from("192.0.2.2"), from("2001:db8::2"), from("2001:db8:1::9"), from("2001:db8:2::9")},
			"9 0 true; 5 0 true; 8 0 true; 7 0 true; 5 0 true", rule.ClientPrefix{}},
		{"larger networks", "[ip]", "ip,1m\n192.0.2.0/24,9\n192.0.3.1,3\n2001:db8:2::/56,6\n", []rule.Request{from("192.0.2.1"), from("192.0.3.1"), from("2001:db8:2::9")}, "9 0 true; 5 0 true; 6 0 true", rule.ClientPrefix{IPv4: 24, IPv6: 56}},
		{"a combination", `[host, method, path, "query:q", "cookie:c"]`, "host,method,path,query:q,cookie:c,1m\nExample.com,post,/Login/,a b,c d,9\n", []rule.Request{
			{Host: "example.COM:80", Method: "POST", Path: "/login", Query: "q=a+b", Header: map[string][]string{"Cookie": {"c=c%20d"}}}, {Host: "example.com"}}, "9 0 true; 5 0 true", rule.ClientPrefix{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := loadWith(t, "rules: [{id: a, characteristics: "+test.characteristics+", limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]", test.plans)
			var got []string
			for _, req := range test.requests {
				got = append(got, limitsOf(set, req, test.client))
			}
			if got := strings.Join(got, "; "); got != test.want {
				t.Errorf("limits %s, want %s", got, test.want)
			}
		})
	}
}

// Keys with the same thresholds share them.
func TestPlansAreShared(t *testing.T) {
	set := loadWith(t, "rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]", "host,1m\na,7\nb,8\nc,7\n")
	if plans, keys := set.Rules()[0].Overridden(); len(plans) != 2 || keys != 3 {
		t.Errorf("%d keys have %d plans, want 3 with 2", keys, len(plans))
	}
}

// After a reload, a rule keeps its counts, and a key has its new limits from its next request on.
func TestOverridesOfAnotherSet(t *testing.T) {
	const rules = "rules: [{id: b, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}, {id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]"
	load := func(rules, plans string) (*rule.Set, *rule.Rule) {
		set := loadWith(t, rules, plans)
		req := rule.Request{Host: "x"}
		req.Canonicalize(rule.ClientPrefix{})
		r := set.Rule("a")
		keys := r.Keys(nil, &req)
		return set, r.Override(keys.At(0))
	}
	before, gold := load(rules, "host,1m\nx,100\n")
	after, platinum := load(rules, "host,1m\nx,1000\n")
	without, plain := load(strings.Replace(rules, ", overrides: plans.csv", "", 1), "")
	if gold.Limits[0].Threshold != 100 || platinum.Limits[0].Threshold != 1000 || gold.Index != 1 {
		t.Fatalf("limits %v at %d, then %v", gold.Limits, gold.Index, platinum.Limits)
	}
	for _, test := range []struct {
		name    string
		set     *rule.Set
		r, want *rule.Rule
	}{
		{"the same set", before, gold, gold},
		{"the next set", after, gold, gold},
		{"the rule without limits of a key", after, before.Rule("a"), after.Rule("a")},
		{"a set without overrides", without, gold, plain},
	} {
		if got := test.set.Current(test.r); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// millionPlans returns a file with overrides of a million keys.
func millionPlans() string {
	var b bytes.Buffer
	b.WriteString("header:x-key,1m\n")
	for i := range 1_000_000 {
		fmt.Fprintf(&b, "customer-%08x-%08x,%d\n", i, i*2654435761, 100*(1+i%50))
	}
	return b.String()
}

// Looking up one of a million keys does not allocate. The overrides need little memory.
func BenchmarkOverride(b *testing.B) {
	plans := millionPlans()
	used := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	before, start := used(), time.Now()
	set := loadWith(b, `rules: [{id: a, characteristics: ["header:x-key"], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]`, plans)
	loading, memory := time.Since(start), used()-before
	r := set.Rules()[0]
	var keys []string
	for i := range 1 << 12 {
		n := i * 241
		req := rule.Request{Header: map[string][]string{"X-Key": {fmt.Sprintf("customer-%08x-%08x", n, n*2654435761)}}}
		req.Canonicalize(rule.ClientPrefix{})
		one := r.Keys(nil, &req)
		keys = append(keys, string(one.At(0)))
	}
	material := make([][]byte, len(keys))
	for i := range keys {
		material[i] = []byte(keys[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if r.Override(material[i%len(material)]) == r {
			b.Fatal("a key has no override")
		}
		i++
	}
	b.ReportMetric(loading.Seconds(), "s/load")
	b.ReportMetric(memory, "MB")
	runtime.KeepAlive(plans)
}

// The request path does not allocate to look up a key.
func TestOverrideDoesNotAllocate(t *testing.T) {
	set := loadWith(t, "rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]", "host,1m\nx,100\n")
	req := rule.Request{Host: "x"}
	req.Canonicalize(rule.ClientPrefix{})
	var buf [256]byte
	if n := testing.AllocsPerRun(100, func() {
		r := set.Rules()[0]
		keys := r.Keys(buf[:0], &req)
		if r.Override(keys.At(0)) == r {
			t.Error("the key has no override")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
