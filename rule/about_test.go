package rule_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// A key is described by the values of the request, if they give that key. Values that clients choose are not shown.
func TestAbout(t *testing.T) {
	set := load(t, map[string]string{"hosting.txt": "192.0.2.0/24 Example Hosting\n", "rules.yaml": `labels: {provider: {file: hosting.txt}}
rules:
  - {id: client, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
  - {id: net, characteristics: ["network:24/48"], limits: [{threshold: 5, period: 1m}]}
  - {id: label, characteristics: ["label:provider"], limits: [{threshold: 5, period: 1m}]}
  - {id: login, characteristics: [ip, host, path, method], limits: [{threshold: 5, period: 1m}]}
  - {id: header, characteristics: ["header:x-api-key"], limits: [{threshold: 5, period: 1m}]}
  - {id: both, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 5, period: 1m}]}
  - {id: first, characteristics: [{first: ["cookie:sid", ip]}], limits: [{threshold: 5, period: 1m}]}
`})
	v4 := rule.Request{Addr: netip.MustParseAddr("192.0.2.7"), Host: "example.com", Path: "/login", Method: "POST"}
	v6 := rule.Request{Addr: netip.MustParseAddr("2001:db8::7")}
	withKey := v4
	withKey.Header = map[string][]string{"X-Api-Key": {"secret"}, "Cookie": {"sid=secret"}}
	for _, tt := range []struct {
		rule           string
		counted, known rule.Request
		want           string
		complete       bool
	}{
		{"client", v4, v4, "192.0.2.7", true},
		{"client", v6, v6, "2001:db8::/64", true},
		{"client", v4, rule.Request{}, "ip", false},
		{"net", v4, v4, "network 192.0.2.0/24", true},
		{"net", v6, v6, "network 2001:db8::/48", true},
		{"net", v4, rule.Request{}, "network", false},
		{"label", v4, v4, "provider Example Hosting", true},
		{"label", v4, v6, "provider", false},
		{"login", v4, v4, "192.0.2.7, host example.com, path /login, method POST", true},
		{"login", v4, rule.Request{Addr: v4.Addr}, "ip, host, path, method", false},
		{"header", withKey, withKey, "header x-api-key", false},
		{"header", withKey, v4, "header x-api-key", false},
		{"both", withKey, v4, "192.0.2.7, header x-api-key", false},
		{"first", v4, v4, "192.0.2.7", true},
		{"first", withKey, v4, "cookie sid", false},
		{"first", withKey, withKey, "cookie sid", false},
		{"first", withKey, rule.Request{}, "cookie sid or ip", false},
	} {
		r := set.Rule(tt.rule)
		tt.counted.Canonicalize(rule.ClientPrefix{})
		tt.known.Canonicalize(rule.ClientPrefix{})
		key, _ := r.AppendKey(nil, &tt.counted)
		text, complete := r.About(&tt.known, func(b []byte) bool { return bytes.Equal(b, key) })
		if text != tt.want || complete != tt.complete {
			t.Errorf("rule %s: %q, complete %t; want %q, %t", tt.rule, text, complete, tt.want, tt.complete)
		}
	}
}
