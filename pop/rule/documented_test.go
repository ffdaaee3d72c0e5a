package rule_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/edgelimit/edge/pop/rule"
)

// documented returns the rules below a heading of docs/rules.md.
func documented(t *testing.T, heading string) *rule.Set {
	t.Helper()
	return parse(t, documentedText(t, heading))
}

func documentedText(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/rules.md")
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
	of := documented(t, "Counting by the answer").Rules()[0].Statuses
	for _, status := range []int{200, 399, 400, 404, 499, 500, 503, 504} {
		if want := status/100 == 4 || status == 503; of.Has(status) != want {
			t.Errorf("the status %d is counted: %t, want %t", status, of.Has(status), want)
		}
	}
}

func TestDocumentedNetworks(t *testing.T) {
	dir := write(t, map[string]string{"crawlers.txt": "192.0.2.0/24 # one\n\n2001:db8::/32\r\n", "rules.yaml": documentedText(t, "Named networks")})
	set, err := rule.Load(dir + "/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
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
