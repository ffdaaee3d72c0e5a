package file_test

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// values compares rules by their exported fields.
var values = cmp.Options{cmpopts.IgnoreUnexported(rule.Rule{}, rule.Characteristic{}, rule.NetworkSet{}), prefixes}

// prefixes compares networks.
var prefixes = cmpopts.EquateComparable(netip.Prefix{})

// statuses returns the set of the statuses of list.
func statuses(list ...int) *rule.Statuses {
	var s rule.Statuses
	for _, status := range list {
		s.Add(status)
	}
	return &s
}

// Values that the expected rules of many tests have.
var (
	refusal = &rule.Response{Status: 429, ContentType: "text/plain; charset=utf-8", Body: "too many requests\n"}
	byIP    = []rule.Characteristic{{Kind: rule.IP}}
	office  = &rule.NetworkSet{Name: "office", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.7/32")}}
	five    = []rule.Limit{{Threshold: 5, Period: time.Minute}}
)

// valid are files that the parser reads, with their rules and listed networks.
var valid = []struct {
	name, text string
	rules      []*rule.Rule
	listed     map[string]rule.Access
}{
	{"no rules", "rules: []\n", nil, nil},
	{"nothing at all", "{}\n", nil, nil},
	{"lists only", "deny: []\nallow: [192.0.2.7]\n", nil, map[string]rule.Access{"192.0.2.7/32": rule.Allowed}},
	{"networks of all kinds",
		"allow: [192.0.2.0/24, \"2001:db8::/32\", \"::ffff:203.0.113.9\"]\ndeny:\n- 198.51.100.0/24 # a comment\n- 2001:DB8::1\n- \"::ffff:10.0.0.0/104\"\n- \"::/0\"\n- \"::ffff:0:0/96\"\n",
		nil, map[string]rule.Access{
			"192.0.2.0/24": rule.Allowed, "2001:db8::/32": rule.Allowed, "203.0.113.9/32": rule.Allowed,
			"198.51.100.0/24": rule.Denied, "2001:db8::1/128": rule.Denied, "10.0.0.0/8": rule.Denied,
			"::/0": rule.Denied, "0.0.0.0/0": rule.Denied,
		}},
	{"only what is required", "rules:\n- id: a\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"everything", `
rules:
  - id: login                      # stable name, part of every key
    match: {hosts: [example.com, "*.example.com"], methods: [POST], paths: [/login, /api/*]}
    count: {statuses: [401, 403]}
    characteristics: [ip]
    limits:
      - {threshold: 5, period: 1m}
      - {threshold: 50, period: 1h}
    mitigation_timeout: 10m
    action: block
    response: {status: 429, content_type: text/plain, body: "too many attempts"}
allow: [192.0.2.0/24]
deny: [198.51.100.0/24]
`, []*rule.Rule{{
		ID: "login", File: "r.yaml", Line: 3,
		Match:    rule.Match{Hosts: []string{"example.com", "*.example.com"}, Methods: []string{"POST"}, Paths: []string{"/login", "/api/*"}},
		Statuses: statuses(401, 403), Characteristics: byIP,
		Limits:            []rule.Limit{{Threshold: 5, Period: time.Minute}, {Threshold: 50, Period: time.Hour}},
		MitigationTimeout: 10 * time.Minute, Action: rule.Block,
		Response: &rule.Response{Status: 429, ContentType: "text/plain", Body: "too many attempts"},
	}}, map[string]rule.Access{"192.0.2.0/24": rule.Allowed, "198.51.100.0/24": rule.Denied}},
	{"all characteristics", withCharacteristics(`[ip, host, path, method, header:X-API-Key, cookie:SID, "query:a b:c", {header: Accept, missing: skip}, {cookie: t, missing: share}, {query: é}]`), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Limits: five, Action: rule.Block, Response: refusal,
		Characteristics: []rule.Characteristic{
			{Kind: rule.IP}, {Kind: rule.Host}, {Kind: rule.Path}, {Kind: rule.Method},
			{Kind: rule.Header, Name: "x-api-key"}, {Kind: rule.Cookie, Name: "SID"}, {Kind: rule.Query, Name: "a b:c"},
			{Kind: rule.Header, Name: "accept", Skip: true}, {Kind: rule.Cookie, Name: "t"}, {Kind: rule.Query, Name: "é"},
		},
	}}, nil},
	{"values at their bounds", withID("A1._-"+strings.Repeat("z", 59)) +
		"- id: \"0\"\n  characteristics: [host]\n  limits: [{threshold: 1, period: 1s}, {threshold: 9007199254740992, period: 7d}]\n  mitigation_timeout: 7d\n  count: {statuses: [200, 599]}\n  response: {status: 200}\n" +
		"- id: b\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 6d23h59m60s}]\n  mitigation_timeout: 0\n  response: {status: 599, body: " + strings.Repeat("x", 64<<10) + ", headers: {A: \"{origin}" + strings.Repeat("b", 2035) + "\"}, origins: [" + numbered("https://%d.example", 64) + "]}\n",
		[]*rule.Rule{
			{ID: "A1._-" + strings.Repeat("z", 59), File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
			{ID: "0", Index: 1, File: "r.yaml", Line: 5, Characteristics: []rule.Characteristic{{Kind: rule.Host}},
				Limits:            []rule.Limit{{Threshold: 1, Period: time.Second}, {Threshold: 1 << 53, Period: 168 * time.Hour}},
				MitigationTimeout: 168 * time.Hour, Statuses: statuses(200, 599), Action: rule.Block,
				Response: &rule.Response{Status: 200, ContentType: "text/plain; charset=utf-8"}},
			{ID: "b", Index: 2, File: "r.yaml", Line: 11, Characteristics: byIP, Limits: []rule.Limit{{Threshold: 5, Period: 168 * time.Hour}}, Action: rule.Block,
				Response: &rule.Response{Status: 599, ContentType: "text/plain; charset=utf-8", Body: strings.Repeat("x", 64<<10),
					OriginFields: "A: {origin}" + strings.Repeat("b", 2035) + "\r\n", Origins: strings.Split(numbered("https://%d.example", 64), ", ")}},
		}, nil},
	{"sub-windows and estimates", withLimits("[{threshold: 50, period: 1m, sub_windows: auto}, {sub_windows: 4, threshold: 96, period: 2m, estimate: whole_oldest}, {threshold: 97, sub_windows: auto, period: 2h}, " +
		"{threshold: 5, period: 3h, sub_windows: 1}, {threshold: 5, period: 4h, estimate: fixed}, {threshold: 50, period: 4s, sub_windows: auto, estimate: weighted}, {threshold: 50, period: 1s, sub_windows: auto}, {threshold: 5, period: 2s, estimate: fixed, sub_windows: 1}, " +
		"{threshold: 5, period: 5s, round: down}, {threshold: 5, period: 6s, round: none}, {threshold: 5, period: 7s, round: down, estimate: fixed}]"), []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Action: rule.Block, Response: refusal, Limits: []rule.Limit{
			{Threshold: 50, Period: time.Minute, SubWindows: 6}, {Threshold: 96, Period: 2 * time.Minute, SubWindows: 4, Estimate: counter.WholeOldest}, {Threshold: 97, Period: 2 * time.Hour, SubWindows: 5},
			{Threshold: 5, Period: 3 * time.Hour}, {Threshold: 5, Period: 4 * time.Hour, Estimate: counter.Fixed}, {Threshold: 50, Period: 4 * time.Second, SubWindows: 4}, {Threshold: 50, Period: time.Second}, {Threshold: 5, Period: 2 * time.Second, Estimate: counter.Fixed},
			{Threshold: 5, Period: 5 * time.Second, Estimate: counter.WeightedRounded}, {Threshold: 5, Period: 6 * time.Second}, {Threshold: 5, Period: 7 * time.Second, Estimate: counter.Fixed},
		}},
	}, nil},
	{"limits that differ in their counting alone", `
rules:
- {id: plain, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: packed, characteristics: [ip], limits: [{threshold: 5, period: 1m, sub_windows: 2}]}
- {id: fixed, characteristics: [ip], limits: [{threshold: 5, period: 1m, estimate: fixed}]}
`, []*rule.Rule{
		{ID: "plain", Index: 0, File: "r.yaml", Line: 3, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "packed", Index: 1, File: "r.yaml", Line: 4, Characteristics: byIP, Limits: []rule.Limit{{Threshold: 5, Period: time.Minute, SubWindows: 2}}, Action: rule.Block, Response: refusal},
		{ID: "fixed", Index: 2, File: "r.yaml", Line: 5, Characteristics: byIP, Limits: []rule.Limit{{Threshold: 5, Period: time.Minute, Estimate: counter.Fixed}}, Action: rule.Block, Response: refusal},
	}, nil},
	{"ways to fail", `
rules:
- {id: none, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {on_failure: local, id: local, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: open, characteristics: [ip], on_failure: open, limits: [{threshold: 5, period: 1m}]}
- {id: closed, characteristics: [ip], limits: [{threshold: 5, period: 1m}], on_failure: "closed"}
`, []*rule.Rule{
		{ID: "none", Index: 0, File: "r.yaml", Line: 3, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "local", Index: 1, File: "r.yaml", Line: 4, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "open", Index: 2, File: "r.yaml", Line: 5, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, OnFailure: rule.FailOpen},
		{ID: "closed", Index: 3, File: "r.yaml", Line: 6, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, OnFailure: rule.FailClosed},
	}, nil},
	{"responses of the actions, in any order of keys", `
rules:
- {id: block, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {action: shadow_ban, id: ban, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: log, characteristics: [ip], limits: [{threshold: 5, period: 1m}], action: log}
- {response: {body: "<p>"}, action: shadow_ban, id: fake, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: close, characteristics: [ip], limits: [{threshold: 5, period: 1m}], action: close, response: {status: 429}}
- {id: hide, characteristics: [ip], limits: [{threshold: 5, period: 1m}], response: {status: 404}}
- {id: empty, characteristics: [ip], limits: [{threshold: 5, period: 1m}], response: {body: ""}}
- {id: json, characteristics: [ip], limits: [{threshold: 5, period: 1m}], response: {content_type: "application/json; charset=utf-8"}}
- {id: none, characteristics: [ip], limits: [{threshold: 5, period: 1m}], response: {status: 204, body: ""}}
- {id: quiet, characteristics: [ip], limits: [{threshold: 5, period: 1m}], action: shadow_ban, response: {status: 429}}
`, []*rule.Rule{
		{ID: "block", Index: 0, File: "r.yaml", Line: 3, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "ban", Index: 1, File: "r.yaml", Line: 4, Characteristics: byIP, Limits: five, Action: rule.ShadowBan, Response: &rule.Response{Status: 200, ContentType: "text/plain; charset=utf-8"}},
		{ID: "log", Index: 2, File: "r.yaml", Line: 5, Characteristics: byIP, Limits: five, Action: rule.Log, Response: refusal},
		{ID: "fake", Index: 3, File: "r.yaml", Line: 6, Characteristics: byIP, Limits: five, Action: rule.ShadowBan, Response: &rule.Response{Status: 200, ContentType: "text/plain; charset=utf-8", Body: "<p>"}},
		{ID: "close", Index: 4, File: "r.yaml", Line: 7, Characteristics: byIP, Limits: five, Action: rule.Close, Response: refusal},
		{ID: "hide", Index: 5, File: "r.yaml", Line: 8, Characteristics: byIP, Limits: five, Action: rule.Block, Response: &rule.Response{Status: 404, ContentType: "text/plain; charset=utf-8"}},
		{ID: "empty", Index: 6, File: "r.yaml", Line: 9, Characteristics: byIP, Limits: five, Action: rule.Block, Response: &rule.Response{Status: 429, ContentType: "text/plain; charset=utf-8"}},
		{ID: "json", Index: 7, File: "r.yaml", Line: 10, Characteristics: byIP, Limits: five, Action: rule.Block, Response: &rule.Response{Status: 429, ContentType: "application/json; charset=utf-8"}},
		{ID: "none", Index: 8, File: "r.yaml", Line: 11, Characteristics: byIP, Limits: five, Action: rule.Block, Response: &rule.Response{Status: 204, ContentType: "text/plain; charset=utf-8"}},
		{ID: "quiet", Index: 9, File: "r.yaml", Line: 12, Characteristics: byIP, Limits: five, Action: rule.ShadowBan, Response: &rule.Response{Status: 429, ContentType: "text/plain; charset=utf-8"}},
	}, nil},
	{"headers of a response", withKeys(`response:`, `  headers:`, `    access-control-allow-origin: "{origin}"`, `    Vary: Origin`, `    X-Id: "{id} {other} {{retry_after}"`,
		`  origins: [https://app.example.com, "https://*.example.com:8443", "http://[::1]:3000", chrome-extension://abc]`, `  max_retry_after: 1h`, `ratelimit_headers: false`,
	), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, HidesQuota: true,
		Response: &rule.Response{
			Status: 429, ContentType: refusal.ContentType, Body: refusal.Body, MaxRetryAfter: time.Hour,
			Fields: "Vary: Origin\r\nX-Id: {id} {other} {{retry_after}\r\n", OriginFields: "Access-Control-Allow-Origin: {origin}\r\n",
			Origins: []string{"https://app.example.com", "https://*.example.com:8443", "http://[::1]:3000", "chrome-extension://abc"},
		},
	}}, nil},
	{"shadow ban with headers like the origin's", withKeys(`action: shadow_ban`, `response: {headers: {Access-Control-Allow-Origin: "{origin}"}, origins: [https://a.example]}`), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.ShadowBan,
		Response: &rule.Response{Status: 200, ContentType: refusal.ContentType, OriginFields: "Access-Control-Allow-Origin: {origin}\r\n", Origins: []string{"https://a.example"}},
	}}, nil},
	{"hosts, methods and paths of all shapes", withKeys(
		`match:`,
		`  hosts: [Example.COM, "*.B.example.", "[2001:DB8:0::1]", 192.0.2.1, localhost, a_b.c-d, "`+strings.Repeat("a.", 126)+`b"]`,
		`  methods: [GET, M-SEARCH, "X!#$%&'+.^_|~"]`,
		`  paths: [/, "*", /*, /a*, /a/*, /.well-known/x, "/a/.*", "/a/..*", "/a b", /%zz, "/über", "/a\nb"]`,
	), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal,
		Match: rule.Match{
			Hosts:   []string{"example.com", "*.b.example", "[2001:db8::1]", "192.0.2.1", "localhost", "a_b.c-d", strings.Repeat("a.", 126) + "b"},
			Methods: []string{"GET", "M-SEARCH", "X!#$%&'+.^_|~"},
			Paths:   []string{"/", "*", "/*", "/a*", "/a/*", "/.well-known/x", "/a/.*", "/a/..*", "/a b", "/%zz", "/über", "/a\nb"},
		},
	}}, nil},
	{"paths that are equal as they are matched", withKeys("match: {paths: [/Login, /login/, /LOGIN, /api/*, /Ü/]}"), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal,
		Match: rule.Match{Paths: []string{"/login", "/api/*", "/ü"}},
	}}, nil},
	{"exceptions, before how paths are read", withKeys("except: [{paths: [/Health/, '/a;b']}, {hosts: [Example.com], methods: [GET, HEAD]}]", "match: {path_parameters: exact}"), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal,
		Except:     []rule.Match{{Paths: []string{"/health", "/a;b"}}, {Hosts: []string{"example.com"}, Methods: []string{"GET", "HEAD"}}},
		PathSyntax: rule.PathSyntax{ExactParameters: true},
	}}, nil},
	{"count_while_mitigated", withKeys("count_while_mitigated: true") + "- {id: b, characteristics: [ip], limits: [{threshold: 5, period: 1m}], count_while_mitigated: false, count: {statuses: [401]}}\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, CountWhileMitigated: true},
		{ID: "b", Index: 1, File: "r.yaml", Line: 6, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, Statuses: statuses(401)},
	}, nil},
	{"costs", withKeys("count: {cost: 1000000}") + "- {id: b, characteristics: [ip], limits: [{threshold: 5, period: 1m}], count: {cost_header: x-cost, statuses: [401]}}\n- {id: c, characteristics: [ip], limits: [{threshold: 5, period: 1m}], count: {cost: 1}, count_while_mitigated: true, count_refused: true}\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, Cost: 1_000_000},
		{ID: "b", Index: 1, File: "r.yaml", Line: 6, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, CostHeader: "X-Cost", Statuses: statuses(401)},
		{ID: "c", Index: 2, File: "r.yaml", Line: 7, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, Cost: 1, CountWhileMitigated: true, CountRefused: true},
	}, nil},
	{"costs known late", withKeys("count: {cost_header: x-cost, reserve: 50}") + "- {id: b, characteristics: [ip], limits: [{threshold: 5, period: 1m}], count: {cost_json: usage.total_tokens, reserve: 3, cost: 9}}\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, CostHeader: "X-Cost", Reserve: 50, Cost: 50},
		{ID: "b", Index: 1, File: "r.yaml", Line: 6, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, CostJSON: "usage.total_tokens", Reserve: 3, Cost: 9},
	}, nil},
	{"named networks, after the rules", withKeys("match: {networks: [office]}", "except: {networks: [b, office]}") + "networks: {office: [192.0.2.0/24, '::ffff:192.0.2.7'], b: ['2001:db8::/32']}\n", []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal,
		Match:  rule.Match{Networks: []*rule.NetworkSet{office}},
		Except: []rule.Match{{Networks: []*rule.NetworkSet{{Name: "b", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}}, office}}},
	}}, nil},
	{"paths as an exact origin reads them", withKeys("match: {paths: [/Login, '/a;b'], path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: url}"), []*rule.Rule{{
		ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal,
		Match: rule.Match{Paths: []string{"/Login", "/a;b"}}, PathSyntax: rule.PathSyntax{Reading: rule.ReadURL, ExactCase: true, ExactSlash: true, ExactParameters: true},
	}}, nil},
	{"anchors and aliases", `
rules:
- id: a
  characteristics: &key [&ip ip]
  limits: &limits
  - &limit {threshold: &n 5, period: &period 1m}
- id: b
  characteristics: *key
  limits: [*limit]
- id: c
  characteristics: [*ip]
  limits: *limits
  mitigation_timeout: *period
`, []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 3, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "b", Index: 1, File: "r.yaml", Line: 7, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "c", Index: 2, File: "r.yaml", Line: 10, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal, MitigationTimeout: time.Minute},
	}, nil},
	{"words that were truth values in YAML 1.1", withID("on") + "- id: no\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n", []*rule.Rule{
		{ID: "on", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
		{ID: "no", Index: 1, File: "r.yaml", Line: 5, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"numbers in quotes as names", withID(`"010"`), []*rule.Rule{
		{ID: "010", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"JSON", `{"rules": [{"id": "a", "characteristics": ["ip"], "limits": [{"threshold": 5, "period": "60s"}], "mitigation_timeout": "0s"}], "allow": []}`, []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 1, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"byte order mark, CRLF and end of the document", "\ufeff# \u00e9\r\nrules:\r\n- id: a\r\n  characteristics: [ip]\r\n  limits: [{threshold: 5, period: 1m}]\r\n...\r\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 3, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"beginning of the document", "%YAML 1.1\n---\nrules:\n- id: a\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 4, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
	{"body in a block", withKeys("response:", "  body: |", "    - not", "    rules: a list", "", "    end"), []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 2, Characteristics: byIP, Limits: five, Action: rule.Block,
			Response: &rule.Response{Status: 429, ContentType: "text/plain; charset=utf-8", Body: "- not\nrules: a list\n\nend\n"}},
	}, nil},
	{"tabs where they do not indent", "rules: [\t{id: a,\n\tcharacteristics: [ip],\tlimits: [{threshold: 5, period: 1m}]}\t]\n", []*rule.Rule{
		{ID: "a", File: "r.yaml", Line: 1, Characteristics: byIP, Limits: five, Action: rule.Block, Response: refusal},
	}, nil},
}

func TestParseValid(t *testing.T) {
	for _, test := range valid {
		t.Run(test.name, func(t *testing.T) {
			set, err := rulefile.Parse("r.yaml", []byte(test.text))
			if err != nil {
				t.Fatalf("Parse(%q) = %v, want no error", test.text, err)
			}
			if diff := cmp.Diff(test.rules, set.Rules(), values, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("rules of %q (-want +got):\n%s", test.text, diff)
			}
			listed := map[netip.Prefix]rule.Access{}
			for network, access := range test.listed {
				listed[netip.MustParsePrefix(network)] = access
			}
			if diff := cmp.Diff(listed, maps.Collect(set.Entries()), prefixes); diff != "" {
				t.Errorf("listed networks of %q (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func TestParseInvalid(t *testing.T) {
	for _, test := range invalid {
		t.Run(test.name, func(t *testing.T) {
			set, err := rulefile.Parse("r.yaml", []byte(test.text))
			if err == nil {
				t.Fatalf("Parse(%q) = %d rules, want an error", test.text, len(set.Rules()))
			}
			if diff := cmp.Diff(strings.Split(test.want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("errors of %q (-want +got):\n%s", test.text, diff)
			}
			checkErrors(t, test.text, err)
		})
	}
}

// Rules share equal values.
func TestParseShares(t *testing.T) {
	one := `characteristics: [ip, header:x], limits: [{threshold: 5, period: 1m}], count: {statuses: [401]}, match: {methods: [GET], paths: [/a], hosts: [a, b]}`
	set, err := rulefile.Parse("r.yaml", []byte("rules:\n- {id: a, "+one+"}\n- {id: b, "+one+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := set.Rules()[0], set.Rules()[1]
	if &a.Hosts[0] != &b.Hosts[0] || &a.Methods[0] != &b.Methods[0] || &a.Paths[0] != &b.Paths[0] ||
		&a.Characteristics[0] != &b.Characteristics[0] || &a.Limits[0] != &b.Limits[0] || a.Statuses != b.Statuses || a.Response != b.Response {
		t.Errorf("rules %+v and %+v do not share what is equal", a, b)
	}
}

// Quotes in names must not make different lists look alike.
func TestParseSharesOnlyWhatIsEqual(t *testing.T) {
	set, err := rulefile.Parse("r.yaml", []byte(`
rules:
- {id: a, characteristics: ["query:a\0false\0query:b"], limits: [{threshold: 5, period: 1m}], match: {paths: ["/a\0/b"]}}
- {id: b, characteristics: ["query:a", "query:b"], limits: [{threshold: 5, period: 1m}], match: {paths: ["/a", "/b"]}}
- {id: c, characteristics: ["query:a", {query: b, missing: skip}], limits: [{threshold: 5, period: 1m}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := set.Rules()[0], set.Rules()[1], set.Rules()[2]
	if len(a.Paths) != 1 || len(b.Paths) != 2 || len(a.Characteristics) != 1 || len(b.Characteristics) != 2 {
		t.Errorf("got %q %v and %q %v, want one path and characteristic in the first rule, two in the second",
			a.Paths, a.Characteristics, b.Paths, b.Characteristics)
	}
	if b.Characteristics[1].Skip || !c.Characteristics[1].Skip {
		t.Errorf("Skip of %v is %t, of the same with missing: skip %t, want false and true", b.Characteristics[1], b.Characteristics[1].Skip, c.Characteristics[1].Skip)
	}
}

func FuzzParse(f *testing.F) {
	for _, test := range valid {
		f.Add([]byte(test.text))
	}
	for _, test := range invalid {
		if len(test.text) < 4096 {
			f.Add([]byte(test.text))
		}
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := rulefile.Parse("r.yaml", text)
		if err != nil {
			if set != nil {
				t.Fatalf("Parse(%q) = a set and %v", text, err)
			}
			checkErrors(t, string(text), err)
			return
		}
		for i, r := range set.Rules() {
			if r.Index != i || r.ID == "" || len(r.ID) > rule.MaxID || r.Line < 1 || r.Response == nil || len(r.Characteristics) == 0 || len(r.Limits) == 0 {
				t.Fatalf("Parse(%q): rule %d is %+v", text, i, r)
			}
			for _, l := range r.Limits {
				if l.Threshold < 1 || l.Threshold > rule.MaxThreshold || l.Period < rule.MinPeriod || l.Period > rule.MaxPeriod || l.Period%time.Second != 0 {
					t.Fatalf("Parse(%q): rule %d has the limit %v", text, i, l)
				}
			}
			if text := describe.Rule(r) + strings.Join(describe.Notes(set, r), ""); strings.Contains(text, "%!") {
				t.Fatalf("Parse(%q): rule %d is described by %q", text, i, text)
			}
		}
	})
}

// A disabled rule is checked like the others, but does not belong to the set.
func TestDisabledRules(t *testing.T) {
	dir := write(t, map[string]string{"r.yaml": "rules:\n- {id: a, enabled: false, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n" +
		"- {id: b, enabled: true, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n"})
	all, err := rulefile.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rules := all.Set.Rules(); len(rules) != 1 || rules[0].ID != "b" || rules[0].Index != 0 {
		t.Errorf("rules %v, want b alone", rules)
	}
	if aside := all.Disabled; len(aside) != 1 || aside[0].ID != "a" {
		t.Errorf("disabled: %v, want a", aside)
	}
}
