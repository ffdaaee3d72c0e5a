package rule_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop/rule"
)

// loadWith loads rules and a file plans.csv beside them.
func loadWith(t testing.TB, rules, plans string) (*rule.Set, string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "plans.csv": plans} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rule.Load(filepath.Join(dir, "rules.yaml"))
	return set, dir, err
}

// limitsOf returns the thresholds, or exempt, for each key of a request.
func limitsOf(s *rule.Set, req rule.Request, p rule.ClientPrefix) string {
	req.Canonicalize(p)
	var texts []string
	for _, r := range s.Match(&req, nil) {
		keys := r.Keys(nil, &req)
		for i := range keys.Len() {
			if by := s.Override(r, keys.At(i)); by == nil {
				texts = append(texts, "exempt")
			} else {
				texts = append(texts, fmt.Sprint(by.Limits[0].Threshold, by.Index, by.Base() == r))
			}
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
		{"header", `["header:x-key"]`, "# customers\nheader:x-key,1m\ngold,100\nfree,1\n partner , exempt \n", []rule.Request{header("gold"), header("free"), header("partner"), header("else"), header()},
			"100 0 true; 1 0 true; exempt; 5 0 true; 5 0 true", rule.ClientPrefix{}},
		{"several values", `["header:x-key"]`, "header:x-key,1m\ngold,100\npartner,exempt\n", []rule.Request{header("gold", "else", "partner")}, "100 0 true, 5 0 true, exempt", rule.ClientPrefix{}},
		{"quotes, and an empty value", `["header:x-key"]`, "\ufeffheader:x-key,1m\r\n\"a,b\"\"c\",7\r\n\"\",8\r\n", []rule.Request{header(`a,b"c`), header("")}, "7 0 true; 8 0 true", rule.ClientPrefix{}},
		{"addresses", "[ip]", "ip,1m\n192.0.2.1,9\n2001:db8::1,8\n2001:db8:1::/64,7\n2001:db8:2::/56,6\n", []rule.Request{from("192.0.2.1"), from("192.0.2.2"), from("2001:db8::2"), from("2001:db8:1::9"), from("2001:db8:2::9")},
			"9 0 true; 5 0 true; 8 0 true; 7 0 true; 5 0 true", rule.ClientPrefix{}},
		{"larger networks", "[ip]", "ip,1m\n192.0.2.0/24,9\n192.0.3.1,3\n2001:db8:2::/56,6\n", []rule.Request{from("192.0.2.1"), from("192.0.3.1"), from("2001:db8:2::9")}, "9 0 true; 5 0 true; 6 0 true", rule.ClientPrefix{IPv4: 24, IPv6: 56}},
		{"a combination", `[host, method, path, "query:q", "cookie:c"]`, "host,method,path,query:q,cookie:c,1m\nExample.com,post,/Login/,a b,c d,9\n", []rule.Request{
			{Host: "example.COM:80", Method: "POST", Path: "/login", Query: "q=a+b", Header: map[string][]string{"Cookie": {"c=c%20d"}}}, {Host: "example.com"}}, "9 0 true; 5 0 true", rule.ClientPrefix{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, _, err := loadWith(t, "rules: [{id: a, characteristics: "+test.characteristics+", limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]", test.plans)
			if err != nil {
				t.Fatal(err)
			}
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

// If a file with overrides has errors, the rules are not loaded.
func TestInvalidOverrides(t *testing.T) {
	const two = "rules: [{id: a, characteristics: [ip, 'header:x-key'], limits: [{threshold: 5, period: 1m, sub_windows: 6}, {threshold: 50, period: 1h}], overrides: plans.csv}]"
	for _, test := range []struct{ name, rules, plans, want string }{
		{"another first line", two, "ip,1m,1h\n", "plans.csv:1:1: the first line does not name the columns of rule a (write ip,header:x-key,1m,1h)"},
		{"an empty file", two, "# nothing\n", "plans.csv: the file is empty (write ip,header:x-key,1m,1h in the first line)"},
		{"too few values", two, "ip,header:x-key,1m,1h\n\n192.0.2.1,k,7\n", "plans.csv:3:1: 3 values instead of 4 (write ip,header:x-key,1m,1h, or exempt after the key)"},
		{"too many", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,exempt,,\n", "plans.csv:2:1: 5 values instead of 4 (write ip,header:x-key,1m,1h, or exempt after the key)"},
		{"no number", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,7,many\n", `plans.csv:2:15: a threshold cannot be "many" (write a whole number from 1 to 9007199254740992, in plain decimal digits, or exempt)`},
		{"zero", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,0,\n", `plans.csv:2:13: a threshold cannot be "0" (write a whole number from 1 to 9007199254740992, in plain decimal digits, or exempt)`},
		{"too great for sub-windows", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,97,\n", "plans.csv:2:13: a threshold cannot be 97 with 6 sub-windows, which have room for thresholds up to 96 (set fewer sub_windows in the rule)"},
		{"no address", two, "ip,header:x-key,1m,1h\nlocalhost,k,7,\n", `plans.csv:2:1: rule a counts by ip, and "localhost" is not an address`},
		{"no network", two, "ip,header:x-key,1m,1h\n192.0.2.1/24,k,7,\n", `plans.csv:2:1: "192.0.2.1/24" is an address within a network`},
		{"twice", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,7,\n192.0.2.1,k,8,\n", "plans.csv:3:1: this key is listed twice (remove one of them)"},
		{"a quote", two, "ip,header:x-key,1m,1h\n192.0.2.1,k\"k,7,\n", `plans.csv:2:12: bare " in non-quoted-field`},
		{"no such file", strings.Replace(two, "plans.csv", "customers.csv", 1), "", "rules.yaml:1:150: open customers.csv"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, dir, err := loadWith(t, test.rules, test.plans)
			if err == nil {
				t.Fatal("the file is accepted")
			}
			if got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""); !strings.HasPrefix(got, test.want) {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
	if _, err := rule.Parse("r.yaml", []byte(two)); err == nil || !strings.Contains(err.Error(), "cannot name one") {
		t.Errorf("rules without a file: %v", err)
	}
}

// After a reload, a rule keeps its counts, and a key has its new limits from its next request on.
func TestOverridesOfAnotherSet(t *testing.T) {
	const rules = "rules: [{id: b, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}, {id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]"
	load := func(rules, plans string) (*rule.Set, *rule.Rule) {
		set, _, err := loadWith(t, rules, plans)
		if err != nil {
			t.Fatal(err)
		}
		req := rule.Request{Host: "x"}
		req.Canonicalize(rule.ClientPrefix{})
		r := set.Rule("a")
		keys := r.Keys(nil, &req)
		return set, set.Override(r, keys.At(0))
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

// millionPlans is a file with overrides of a million keys.
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
	set, _, err := loadWith(b, `rules: [{id: a, characteristics: ["header:x-key"], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]`, plans)
	if err != nil {
		b.Fatal(err)
	}
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
		if set.Override(r, material[i%len(material)]) == r {
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
	set, _, err := loadWith(t, "rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]", "host,1m\nx,100\n")
	if err != nil {
		t.Fatal(err)
	}
	req := rule.Request{Host: "x"}
	req.Canonicalize(rule.ClientPrefix{})
	var buf [256]byte
	if n := testing.AllocsPerRun(100, func() {
		r := set.Rules()[0]
		keys := r.Keys(buf[:0], &req)
		if set.Override(r, keys.At(0)) == r {
			t.Error("the key has no override")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
