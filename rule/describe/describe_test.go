package describe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
)

// parse returns the set of a valid file.
func parse(t *testing.T, text string) *rule.Set {
	t.Helper()
	set, err := rulefile.Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse(%q) = %v", text, err)
	}
	return set
}

// withKeys returns a file with a rule that has more keys, one per line.
func withKeys(lines ...string) string {
	return withLimits("[{threshold: 5, period: 1m}]") + "  " + strings.Join(lines, "\n  ") + "\n"
}

// withLimits and withCharacteristics return a file with a rule that has the given value.
func withLimits(limits string) string {
	return "rules:\n- id: a\n  characteristics: [ip]\n  limits: " + limits + "\n"
}

func withCharacteristics(characteristics string) string {
	return "rules:\n- id: a\n  characteristics: " + characteristics + "\n  limits: [{threshold: 5, period: 1m}]\n"
}

// What edge check prints about the rules of a file.
func Example() {
	set, err := rulefile.Load("../file/testdata/example.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range set.Rules() {
		fmt.Println(r.ID + ": " + describe.Rule(r))
		for _, note := range describe.Notes(set, r) {
			fmt.Println("  note:", note)
		}
		for _, l := range r.Limits {
			most, _ := l.Bound(3, 1)
			fmt.Printf("  %v: at most %d in any %s, with 3 that are late\n", l, most, rule.FormatDuration(l.Period))
		}
	}
	// Output:
	// login: POST requests to example.com or *.example.com for /login or /api/* that the origin answers with 401 or 403 are counted for each client address; once one has more than 5 in 1m or 50 in 1h, its further requests, whatever the origin would answer, are refused with 429 Too Many Requests for at least 10m and until the estimate is back at every threshold. Paths are read in every way that origins read them, without regard to letter case, a trailing slash and ;parameters.
	//   note: Requests with another Host, an empty one or none escape this rule. If an origin serves them as well, start the nodes with --strict-hosts, or leave hosts out.
	//   note: If other proxies ask the nodes (check_listen, spop_listen), they must report the origin's responses; without reports this rule counts nothing.
	//   5 in 1m: at most 17 in any 1m, with 3 that are late
	//   50 in 1h: at most 107 in any 1h, with 3 that are late
	// keys: All requests are counted for each combination of host and header x-api-key; once one has more than 600 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold.
	//   note: A client that makes up a new Host for each request is never counted twice, if an origin serves it: start the nodes with --strict-hosts, and name hosts without *., or add a rule by ip.
	//   note: Requests without the header x-api-key escape this rule: they are neither counted nor refused.
	//   note: A request with several values counts under each of them; requests with more than 4 combinations share one count.
	//   note: A client that makes up a new header x-api-key for each request is never counted twice: no other rule limits it. Add one by ip alone with the same match, such as {id: keys-by-ip, characteristics: [ip], limits: …}.
	//   600 in 1m: at most 1207 in any 1m, with 3 that are late
}

func TestDescribe(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"log", withKeys("action: log"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests still pass, but are logged, until the estimate is back at the threshold."},
		{"shadow_ban", withKeys("action: shadow_ban", "mitigation_timeout: 1h30m"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests get a prepared 200 OK and never reach the origin for at least 1h30m and until the estimate is back at the threshold."},
		{"close", withKeys("action: close", "response: {status: 503}"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests have their connection closed (or, behind a trusted proxy, get 503 Service Unavailable) until the estimate is back at the threshold."},
		{"status without a name", withKeys("response: {status: 499}"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 499 until the estimate is back at the threshold."},
		{"headers", withKeys(`response: {headers: {vary: Origin, Access-Control-Allow-Origin: "{origin}"}, origins: ["https://*.example.com", "http://localhost:3000"], max_retry_after: 1h}`, "ratelimit_headers: false"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. The response has the headers Vary and Access-Control-Allow-Origin. Clients are told to wait at most 1h. Clients are not told their quota."},
		{"headers of a rule that logs", withKeys(`action: log`, `response: {headers: {Vary: Origin}, max_retry_after: 1h}`),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests still pass, but are logged, until the estimate is back at the threshold."},
		{"methods only", withKeys("match: {methods: [GET, HEAD, OPTIONS]}"),
			"GET, HEAD and OPTIONS requests are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"paths only", withKeys("match: {paths: [/a*]}"),
			"Requests for /a* are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Paths are read in every way that origins read them, without regard to letter case, a trailing slash and ;parameters."},
		{"exceptions", withKeys("match: {methods: [GET]}", "except: [{paths: [/health]}, {hosts: [a, b], methods: [OPTIONS]}]"),
			"GET requests, except those for /health and OPTIONS requests to a or b, are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Paths are read in every way that origins read them, without regard to letter case, a trailing slash and ;parameters."},
		{"count_while_mitigated", withKeys("count_while_mitigated: true"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Requests of a mitigated key count as well, so a client that does not slow down stays mitigated."},
		{"count_refused", withKeys("count_refused: true"),
			"All requests are counted for each client address, even if other rules refuse them; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"networks", withKeys("match: {paths: [/a], networks: [b, c]}", "except: {networks: [d]}") + "networks: {b: [192.0.2.0/24], c: [192.0.2.1], d: [192.0.2.2]}\n",
			"Requests for /a from b or c, except those from d, are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Paths are read in every way that origins read them, without regard to letter case, a trailing slash and ;parameters."},
		{"exact paths", withKeys("match: {paths: [/a*], path_case: exact, path_trailing_slash: exact, path_parameters: exact, path_reading: resolved}"),
			"Requests for /a* are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Paths are read as nginx, gunicorn, Go, Tomcat and IIS read them."},
		{"many hosts", withKeys("match: {hosts: [a, b, c, d, e, f, g, h, i, j, k]}"),
			"Requests to a, b, c, d, e, f, g and 4 more are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"status classes", withKeys("count: {statuses: [4xx, 503, 2xx]}"),
			"All requests that the origin answers with 200 to 299, 400 to 499 or 503 are counted for each client address; once one has more than 5 in 1m, its further requests, whatever the origin would answer, are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"cost", withKeys("count: {cost: 7}"),
			"All requests are counted 7 times for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"cost header", withKeys("count: {cost: 2, cost_header: x-cost, statuses: [200]}"),
			"All requests that the origin answers with 200 are counted as many times as the header X-Cost of the origin's response says (2 without it, at most 1000000) for each client address; once one has more than 5 in 1m, its further requests, whatever the origin would answer, are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"reserve", withKeys("count: {reserve: 50, cost_json: usage.total_tokens}"),
			"All requests are counted as many times as the number usage.total_tokens in the JSON of the origin's response says (50 without it, at least 50, which count on arrival, at most 1000000) for each client address; once one has more than 5 in 1m, its further requests, whatever the origin would answer, are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"statuses in a row", withKeys("count: {statuses: [404, 500, 501, 502, 599, 598, 201, 200]}"),
			"All requests that the origin answers with 200, 201, 404, 500 to 502, 598 or 599 are counted for each client address; once one has more than 5 in 1m, its further requests, whatever the origin would answer, are refused with 429 Too Many Requests until the estimate is back at the threshold."},
		{"all characteristics", withCharacteristics(`[ip, host, path, method, header:a, cookie:B, "query:c d"]`),
			"All requests are counted for each combination of client address, host, path, method, header a, cookie B and query parameter c d; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. Paths are read in every way that origins read them, without regard to letter case, a trailing slash and ;parameters."},
		{"open", withKeys("on_failure: open"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold. While the shard that counts a key is unavailable, no mitigation of it starts."},
		{"closed", withKeys("on_failure: closed", "action: shadow_ban"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests get a prepared 200 OK and never reach the origin until the estimate is back at the threshold. While the shard that counts a request is unavailable, the request is answered with 503 Service Unavailable."},
		{"local", withKeys("on_failure: local", "action: log"),
			"All requests are counted for each client address; once one has more than 5 in 1m, its further requests still pass, but are logged, until the estimate is back at the threshold."},
		{"three limits", withLimits("[{threshold: 5, period: 1s}, {threshold: 50, period: 90s}, {threshold: 500, period: 7d}]"),
			"All requests are counted for each client address; once one has more than 5 in 1s, 50 in 1m30s or 500 in 7d, its further requests are refused with 429 Too Many Requests until the estimate is back at every threshold."},
	} {
		if diff := cmp.Diff(test.want, describe.Rule(parse(t, test.text).Rules()[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestNotes(t *testing.T) {
	const (
		escape = "Requests without the %s escape this rule: they are neither counted nor refused."
		share  = "Requests without the %s share one count, and are mitigated together."
		makeUp = "A request with several values counts under each of them; requests with more than 4 combinations share one count.\n" +
			"A client that makes up a new %s for each request is never counted twice: no other rule limits it. Add one by ip alone with the same match, such as {id: a-by-ip, characteristics: [ip], limits: …}."
		all      = "All clients share the counts of this rule: one of them can exceed a limit for all."
		hosts    = "Requests with another Host, an empty one or none escape this rule. If an origin serves them as well, start the nodes with --strict-hosts, or leave hosts out."
		anyHost  = "A client that makes up a new Host for each request is never counted twice, if an origin serves it: start the nodes with --strict-hosts, and name hosts without *., or add a rule by ip."
		wildcard = "A client that makes up a new Host like *.example for each request is never counted twice, if an origin serves it, even with --strict-hosts: %s Listing the hosts without *. prevents that, too."
		exact    = "An origin that ignores %s of a path answers requests that escape this rule."
		head     = "HEAD requests escape this rule, although origins usually do the same work for them as for GET: add HEAD."
		override = "If the origin obeys X-HTTP-Method-Override or a parameter _method, a POST request that names another method there escapes this rule: " +
			"turn that off in the origin, or add POST."
		reports  = "If other proxies ask the nodes (check_listen, spop_listen), they must report the origin's responses; without reports this rule counts nothing."
		other    = "An origin that reads paths differently from %s answers requests that escape this rule."
		excepted = "Requests with an excepted Host escape this rule: if an origin answers them like others, clients can send that Host."
	)
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"ip", withCharacteristics("[ip]"), nil},
		{"ip and path", withCharacteristics("[path, ip]"), nil},
		{"host", withCharacteristics("[host]"), []string{anyHost, all}},
		{"host, with all hosts named", "rules: [{id: a, characteristics: [host, ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [a.example]}}]", []string{hosts}},
		{"host, with a wildcard", "rules: [{id: a, characteristics: [host, ip], limits: [{threshold: 5, period: 1m}], match: {hosts: [a.test, '*.example']}}]",
			[]string{hosts, fmt.Sprintf(wildcard, "no other rule limits it. Add one by ip alone with the same match, such as {id: a-by-ip, characteristics: [ip], limits: …}.")}},
		{"host, with a wildcard and a rule by address", "rules: [{id: a, characteristics: [host, ip], limits: [{threshold: 5, period: 1m}], match: {hosts: ['*.example']}}, {id: b, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]",
			[]string{hosts, fmt.Sprintf(wildcard, "rule b, by client address, limits it.")}},
		{"hosts", withKeys("match: {hosts: [a.example]}"), []string{hosts}},
		{"paths", withKeys("match: {paths: [/a]}"), nil},
		{"a mitigation of a steady client", withKeys("mitigation_timeout: 10m"), []string{"A client that sends one request every 12.6s stays within 5 in 1m, but its estimate exceeds that for a moment, so it is refused for 10m: add round: down to the limit."}},
		{"a cost as great as the threshold", withKeys("count: {cost: 5}"), nil},
		{"excepted hosts", withKeys("except: [{paths: [/a]}, {hosts: [a.example]}]"), []string{excepted}},
		{"excepted paths, read exactly", withKeys("match: {path_case: exact}", "except: {paths: [/a]}"), []string{fmt.Sprintf(exact, "letter case")}},
		{"exact paths", withKeys("match: {paths: [/a], path_case: exact, path_parameters: exact, path_reading: literal}"),
			[]string{fmt.Sprintf(exact, "letter case or ;parameters"), fmt.Sprintf(other, "literal")}},
		{"exact characteristic", "rules: [{id: a, characteristics: [ip, path], limits: [{threshold: 5, period: 1m}], match: {path_trailing_slash: exact}}]",
			[]string{fmt.Sprintf(exact, "a trailing slash")}},
		{"header that is skipped", withCharacteristics("[{header: X-Api-Key, missing: skip}]"),
			[]string{fmt.Sprintf(escape, "header x-api-key"), fmt.Sprintf(makeUp, "header x-api-key")}},
		{"GET alone", withKeys("match: {methods: [GET]}"), []string{head, override}},
		{"GET and HEAD", withKeys("match: {methods: [HEAD, GET]}"), []string{override}},
		{"DELETE", withKeys("match: {methods: [DELETE]}"), []string{override}},
		{"POST", withKeys("match: {methods: [POST]}"), nil},
		{"POST and GET", withKeys("match: {methods: [POST, GET]}"), []string{head}},
		{"responses", withKeys("count: {statuses: [401]}"), []string{reports}},
		{"header and ip", withCharacteristics("[ip, header:a]"),
			[]string{fmt.Sprintf(share, "header a"), fmt.Sprintf(makeUp, "header a")}},
		{"several names", withCharacteristics("[header:a, {cookie: b, missing: skip}, query:c]"),
			[]string{fmt.Sprintf(share, "header a"), fmt.Sprintf(escape, "cookie b"), fmt.Sprintf(share, "query parameter c"), fmt.Sprintf(makeUp, "header a, cookie b or query parameter c")}},
	} {
		got := func(set *rule.Set) []string { return describe.Notes(set, set.Rules()[0]) }(parse(t, test.text))
		if diff := cmp.Diff(strings.Join(test.want, "\n"), strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestLimit(t *testing.T) {
	for limit, want := range map[rule.Limit]string{
		{Threshold: 50, Period: time.Minute}:                                                "",
		{Threshold: 50, Period: time.Minute, SubWindows: 6}:                                 "counted in 6 sub-windows of 10s (6×10 bits, for thresholds up to 96)",
		{Threshold: 50, Period: 10 * time.Second, SubWindows: 6}:                            "counted in 6 sub-windows of 1.667s (6×10 bits, for thresholds up to 96)",
		{Threshold: 500, Period: time.Minute, SubWindows: 4, Estimate: counter.WholeOldest}: "counted in 4 sub-windows of 15s (4×16 bits, for thresholds up to 6144), the oldest one whole",
		{Threshold: 500, Period: time.Minute, Estimate: counter.WholeOldest}:                "counted in whole windows, the oldest one whole",
		{Threshold: 5, Period: time.Minute, Estimate: counter.WeightedRounded}:              "counted in whole windows, the estimate rounded down",
		{Threshold: 500, Period: 90 * time.Minute, Estimate: counter.Fixed}:                 "counted in fixed windows of 1h30m",
	} {
		if got := describe.Limit(limit); got != want {
			t.Errorf("Limit(%+v) = %q, want %q", limit, got, want)
		}
	}
}

// The notes name a rule that limits clients that send a new value with each request, or suggest one.
func TestMadeUpValues(t *testing.T) {
	const byKey = `{id: key, characteristics: [{first: [header:a, ip]}], limits: [{threshold: 5, period: 1m}], match: {paths: [/a, /b]}}`
	for _, test := range []struct{ name, other, want string }{
		{"none", "", "no other rule limits it. Add one by ip alone with the same match, such as {id: key-by-ip, characteristics: [ip], limits: …}"},
		{"by ip", "characteristics: [ip]", "rule bound, by client address, limits it"},
		{"by network", "characteristics: [network:24/48], match: {paths: [/a, /b, /c]}", "rule bound, by network (IPv4 /24, IPv6 /48), limits it"},
		{"of fewer paths", "characteristics: [ip], match: {paths: [/a]}", "no other rule limits it"},
		{"of a method", "characteristics: [ip], match: {methods: [GET]}", "no other rule limits it"},
		{"with exceptions", "characteristics: [ip], except: {paths: [/a]}", "no other rule limits it"},
		{"of some answers", "characteristics: [ip], count: {statuses: [401]}", "no other rule limits it"},
		{"that sheds", "characteristics: [network:24/48], action: shed", "no other rule limits it"},
		{"of many clients", "characteristics: [network:24/48], min_clients: 2", "no other rule limits it"},
		{"that logs", "characteristics: [ip], action: log", "no other rule limits it"},
		{"by header", "characteristics: [header:b]", "no other rule limits it"},
	} {
		rules := "rules: [" + byKey
		if test.other != "" {
			rules += ", {id: bound, limits: [{threshold: 5, period: 1m}], " + test.other + "}"
		}
		set := parse(t, rules+"]")
		if notes := strings.Join(describe.Notes(set, set.Rules()[0]), "\n"); !strings.Contains(notes, "is never counted twice: "+test.want) {
			t.Errorf("%s: %s\nwant %s", test.name, notes, test.want)
		}
	}
}
