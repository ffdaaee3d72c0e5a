package rule_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	"github.com/google/go-cmp/cmp"
)

// documented returns the rules below a heading of docs/rules.md.
func documented(t *testing.T, heading string) *rule.Set {
	t.Helper()
	return parse(t, documentedText(t, heading))
}

func documentedText(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## "+heading+"\n")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("docs/rules.md shows no rule under %q", heading)
	}
	return example
}

// The rules in docs/rules.md are valid, and do what it says.
func TestDocumentedCounts(t *testing.T) {
	of := documented(t, "Counting by the response").Rules()[0].Statuses
	for _, status := range []int{200, 399, 400, 404, 499, 500, 503, 504} {
		if want := status/100 == 4 || status == 503; of.Has(status) != want {
			t.Errorf("the status %d is counted: %t, want %t", status, of.Has(status), want)
		}
	}
}

func TestDocumentedNetworks(t *testing.T) {
	set := load(t, map[string]string{"crawlers.txt": "192.0.2.0/24 # one\n\n2001:db8::/32\r\n", "rules.yaml": documentedText(t, "Named networks")})
	for addr, want := range map[string]int{"192.0.2.1": 1, "::ffff:192.0.2.1": 1, "192.0.2.9": 0, "2001:db8::1": 1, "198.51.100.1": 0} {
		req := rule.Request{Addr: netip.MustParseAddr(addr), Method: "GET", Path: "/"}
		req.Canonicalize(rule.ClientPrefix{})
		if got := len(set.Match(&req, nil)); got != want {
			t.Errorf("%s is matched by %d rules, want %d", addr, got, want)
		}
	}
}

func TestDocumentedExceptions(t *testing.T) {
	set := documented(t, "Exceptions")
	for path, want := range map[string]int{"/health": 0, "/static/a.css": 0, "/static/../login": 1, "/api/a": 1} {
		if got := len(matched(set, "GET", "example.com", path)); got != want {
			t.Errorf("%s is matched by %d rules, want %d", path, got, want)
		}
	}
	if got := matched(set, "OPTIONS", "example.com", "/api/a"); len(got) != 0 {
		t.Errorf("OPTIONS /api/a is matched by %v, want nothing", got)
	}
}

func TestDocumentedConditions(t *testing.T) {
	set := documented(t, "Headers, cookies and the query")
	for _, test := range []struct {
		query  string
		header map[string][]string
		want   int
	}{
		{"export", map[string][]string{"User-Agent": {"Python-urllib/3.12"}}, 1},
		{"export", map[string][]string{"User-Agent": {"Java/21"}, "Cookie": {"beta=2"}}, 1},
		{"export", map[string][]string{"User-Agent": {"a Java/21"}}, 0},
		{"", map[string][]string{"User-Agent": {"curl/8"}}, 0},
		{"export", map[string][]string{"User-Agent": {"curl/8"}, "Authorization": {"a"}}, 0},
		{"export", map[string][]string{"User-Agent": {"curl/8"}, "Cookie": {"beta=1"}}, 0},
		{"export", map[string][]string{"User-Agent": {"curl/8"}, "Cookie": {"beta=1; beta=2"}}, 1},
	} {
		req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Path: "/", Query: test.query, Header: test.header}
		req.Canonicalize(rule.ClientPrefix{})
		if got := len(set.Match(&req, nil)); got != test.want {
			t.Errorf("?%s %v is matched by %d rules, want %d", test.query, test.header, got, test.want)
		}
	}
}

// The rules in docs/rules.md are valid, and do what it says.
func TestDocumentedBan(t *testing.T) {
	rules := documented(t, "Counting what other rules refuse").Rules()
	const want = "All requests are counted for each client address, even if other rules refuse them; once one has more than 200 in 10m, " +
		"its further requests are refused with 429 Too Many Requests for at least 1d and until the estimate is back at the threshold."
	if got := describe.Rule(rules[1]); got != want {
		t.Errorf("%s\nwant: %s", got, want)
	}
}

func TestDocumentedParents(t *testing.T) {
	set := load(t, map[string]string{
		"rules.yaml":    documentedText(t, "Attacks from many addresses"),
		"providers.txt": "198.51.100.0/24 Example Hosting\n",
	})
	got := map[string]string{}
	for _, r := range set.Rules() {
		got[r.ID] = describe.Rule(r)
	}
	const shed = "its further requests are refused with 429 Too Many Requests for the share of its clients that exceeds the threshold, until the estimate is back at the threshold."
	want := map[string]string{
		"client":   "All requests are counted for each client address; once one has more than 60 in 10s, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold.",
		"block":    "All requests are counted for each network (IPv4 /24, IPv6 /48); once one has more than 200 in 10s, from at least 10 clients, " + shed,
		"wide":     "All requests are counted for each network (IPv4 /16, IPv6 /32); once one has more than 2000 in 10s, from at least 30 clients, " + shed,
		"provider": "All requests are counted for each label provider; once one has more than 5000 in 10s, from at least 30 clients, " + shed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the rules mean (-want +got):\n%s", diff)
	}
	if clients := set.Rules()[1].MinClients; clients != 10 || set.Rules()[1].Action != rule.Shed {
		t.Errorf("block has min_clients %d and action %v", clients, set.Rules()[1].Action)
	}
}
