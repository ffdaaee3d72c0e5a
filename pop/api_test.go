package pop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop"
)

// An operator asks the nodes of a PoP through their APIs, and checks each answer against the OpenAPI
// description.
type operator struct {
	t       *testing.T
	nodes   []*pop.Node
	schemas *jsonschema.Compiler
}

func startOperator(t *testing.T, rules string) *operator {
	t.Helper()
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	local, err := pop.StartLocal(pop.LocalOptions{Nodes: 3, Node: pop.Options{
		Rules: parse(t, rules), Origin: site.URL, LogClients: true, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Version: "v1.2.3 go1.0 any/any", Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Stop(context.Background()) })
	o := &operator{t: t, nodes: local.Nodes(), schemas: jsonschema.NewCompiler()}
	_, body := o.send(0, "GET", "/api/v1/openapi.json", nil)
	description, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = o.schemas.AddResource("openapi.json", description)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *operator) send(node int, method, path string, values url.Values) (status int, body []byte) {
	o.t.Helper()
	addr := o.nodes[node].Addr("admin").String()
	r, err := http.NewRequestWithContext(o.t.Context(), method, "http://"+addr+path+"?"+values.Encode(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operate.LocalToken(addr))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		o.t.Fatal(err)
	}
	return resp.StatusCode, body
}

// ask calls an operation of the description on a node, and decodes the answer into result.
func (o *operator) ask(node int, operation string, values url.Values, want int, result any) {
	o.t.Helper()
	method, described, _ := strings.Cut(operation, " ")
	path := strings.ReplaceAll(described, "{key}", values.Get("key"))
	status, body := o.send(node, method, path, values)
	schema, err := o.schemas.Compile(fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%d/content/application~1json/schema",
		strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(described), strings.ToLower(method), status))
	if err != nil {
		o.t.Fatalf("%s %v: undocumented answer %d %s: %v", operation, values, status, body, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil || status != want {
		o.t.Fatalf("%s %v: %d %s, want %d as documented: %v", operation, values, status, body, want, err)
	}
	if result != nil {
		if err := json.Unmarshal(body, result); err != nil {
			o.t.Fatal(err)
		}
	}
}

// status returns the status with which a node answers a client.
func (o *operator) status(node int, client string) int {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), "GET", "http://"+o.nodes[node].Addr("http").String()+"/login", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// everywhere waits until all nodes answer a client with a status.
func (o *operator) everywhere(client string, want int) {
	o.t.Helper()
	for i := range o.nodes {
		await(o.t, fmt.Sprintf("node %d answers %s with %d", i+1, client, want), func() bool { return o.status(i, client) == want })
	}
}

// known waits until a node knows a mitigation.
func (o *operator) known(node int, key string) {
	o.t.Helper()
	await(o.t, fmt.Sprintf("node %d knows mitigation %s", node+1, key), func() bool {
		status, _ := o.send(node, "GET", "/api/v1/mitigations/"+key, nil)
		return status == 200
	})
}

// Customer 203.0.113.7 complains: any node explains the refusal, and lifts the mitigation on all nodes. Another
// client is mitigated by hand, and freed together with its network.
func TestComplaint(t *testing.T) {
	o := startOperator(t, `rules:
  - {id: login, match: {paths: [/login]}, characteristics: [ip], limits: [{threshold: 20, period: 7d}]}
  - {id: api, match: {paths: [/api]}, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 20, period: 1m}]}
`)
	const customer, other = "203.0.113.7", "203.0.113.9"
	await(t, "the customer is refused", func() bool { return o.status(0, customer) == 429 })
	var e operate.Explanation
	await(t, "the last node knows why", func() bool {
		o.ask(2, "GET /api/v1/explain", url.Values{"ip": {customer}}, 200, &e)
		return e.Keys[0].Mitigation != nil && e.Keys[0].Mitigation.Node == "node-1" // node names take a moment to arrive
	})
	if k := e.Keys[0]; k.Rule != "login" || k.Mitigation.Client != customer || !strings.Contains(k.Mitigation.Why, "the limit is 20") || len(e.Needs) != 1 {
		t.Errorf("%+v", e)
	}
	var m operate.Mitigation
	o.known(1, e.Keys[0].Key)
	o.ask(1, "GET /api/v1/mitigations/{key}", url.Values{"key": {e.Keys[0].Key}}, 200, &m)
	var l operate.Lifted
	o.ask(2, "POST /api/v1/mitigations/lift", url.Values{"rule": {"login"}, "ip": {customer}, "reason": {"it is their office"}}, 200, &l)
	if m.Key != e.Keys[0].Key || l.Key != m.Key {
		t.Errorf("explained %s, listed %s, lifted %s", e.Keys[0].Key, m.Key, l.Key)
	}
	o.everywhere(customer, 200)

	by := url.Values{"rule": {"login"}, "ip": {other}, "duration": {"1h"}, "reason": {"it sprays passwords"}}
	o.ask(1, "POST /api/v1/mitigations", by, 200, &m)
	if !m.ByHand || m.Rule != "login" || m.Client != other || m.Left < 3000 || m.Left > 3600 {
		t.Errorf("by hand: %+v", m)
	}
	for i := range o.nodes {
		o.known(i, m.Key) // before the other client asks so often that it is refused for that
	}
	o.everywhere(other, 429)
	by.Set("duration", "30m")
	o.ask(2, "POST /api/v1/mitigations", by, 400, nil) // shorter than the existing one
	for values, want := range map[string]int{"": 2, "rule=login&state=active": 1, "state=lifted": 1, "rule=api": 0, "client=203.0.113.9": 1, "client=203.0.113.8/31": 1, "client=203.0.113.0/24": 2, "node=node-2&state=active": 1, "node=node-1&state=active": 0, "key=" + m.Key[:7]: 1} {
		q, _ := url.ParseQuery(values)
		await(t, fmt.Sprintf("%d mitigations are found with %q", want, values), func() bool { // node names take a moment to arrive
			var page operate.Mitigations
			o.ask(0, "GET /api/v1/mitigations", q, 200, &page)
			return page.Total == want && len(page.Mitigations) == want
		})
	}
	network := url.Values{"client": {"203.0.113.0/24"}, "dry_run": {"true"}}
	var all operate.LiftedAll
	if o.ask(0, "POST /api/v1/mitigations/lift-all", network, 200, &all); all != (operate.LiftedAll{Mitigations: 1, DryRun: true}) || o.status(0, other) != 429 {
		t.Errorf("dry run: %+v", all)
	}
	network.Del("dry_run")
	o.ask(0, "POST /api/v1/mitigations/lift-all", network, 200, &all)
	o.everywhere(other, 200)

	// A client is refused everywhere, whatever it asks for, until its address is lifted.
	const third = "203.0.113.11"
	m = operate.Mitigation{}
	o.ask(0, "POST /api/v1/mitigations", url.Values{"ip": {third}, "duration": {"1h"}, "reason": {"abuse"}}, 200, &m)
	if o.everywhere(third, 403); m.Action != "deny" || m.About != third || m.Rule != "" {
		t.Errorf("regardless of rules: %+v", m)
	}
	o.ask(2, "GET /api/v1/explain", url.Values{"ip": {third}}, 200, &e)
	if k := e.Keys[0]; k.Action != "deny" || k.About != third || !k.Refused() {
		t.Errorf("explained: %+v", e)
	}
	o.ask(2, "POST /api/v1/mitigations/lift", url.Values{"ip": {third}}, 200, &l)
	if o.everywhere(third, 200); len(l.Mitigations) != 1 || l.Mitigations[0].About != third {
		t.Errorf("lifted: %+v", l)
	}
	var changes operate.Changes
	o.ask(0, "GET /api/v1/changes", nil, 200, &changes)
	if c := changes.Changes[0]; len(changes.Changes) != 3 || c.By != "local" || c.Do != "mitigations-add" || c.Reason != "abuse" || !strings.Contains(c.What, "key="+m.Key) {
		t.Errorf("changes of the first node: %+v", changes)
	}
}

// The answers of a node about itself and its peers match the description.
func TestStates(t *testing.T) {
	o := startOperator(t, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}]")
	var nodes operate.Nodes
	await(t, "all nodes are known", func() bool {
		o.ask(0, "GET /api/v1/nodes", nil, 200, &nodes)
		return len(nodes.Nodes) == 3 && !slices.ContainsFunc(nodes.Nodes, func(n operate.Node) bool { return n.Version == "" || n.State != "ready" })
	})
	for i, n := range nodes.Nodes {
		if n.Name != fmt.Sprint("node-", i+1) || n.State != "ready" || n.Version != "v1.2.3" || n.Self != (i == 0) || len(n.Fingerprints) != 4 || n.Fingerprints["rules"] != nodes.Nodes[0].Fingerprints["rules"] || len(n.Differs) != 0 {
			t.Errorf("node %d: %+v", i+1, n)
		}
	}
	var shards operate.Shards
	await(t, "all shards are up", func() bool {
		o.ask(1, "GET /api/v1/shards", nil, 200, &shards)
		return !slices.ContainsFunc(shards.Shards, func(s operate.Shard) bool { return s.Down || s.Breaker != "closed" })
	})
	sum := 0.0
	for _, s := range shards.Shards {
		if sum += s.Share; s.Breaker != "closed" || s.Down || !s.InRing {
			t.Errorf("shard %+v", s)
		}
	}
	if len(shards.Shards) != 3 || sum < 0.999 || sum > 1.001 {
		t.Errorf("shards %+v, want three with all keys", shards)
	}
	o.status(2, "192.0.2.1")
	var rules operate.Rules
	o.ask(2, "GET /api/v1/rules", nil, 200, &rules)
	if len(rules.Rules) != 1 || rules.Rules[0].Rule != "a" || rules.Rules[0].Limits[0] != (operate.Limit{Threshold: 100000, Period: 60}) {
		t.Errorf("rules %+v", rules)
	}
	var s operate.Status
	if o.ask(0, "GET /api/v1/status", nil, 200, &s); !s.Ready || s.Node != "node-1" || s.Version != "v1.2.3 go1.0 any/any" {
		t.Errorf("status %+v", s)
	}
	for operation, values := range map[string]url.Values{
		"POST /api/v1/shards/drain":         {"shard": {shards.Shards[0].Addr}},
		"POST /api/v1/shards/undrain":       {"shard": {shards.Shards[0].Addr}},
		"POST /-/reload":                    {"reason": {"a test"}},
		"GET /api/v1/changes":               nil,
		"GET /api/v1/openapi.json":          nil,
		"GET /api/v1/explain":               {"rule": {"a"}, "ip": {"192.0.2.1"}},
		"POST /api/v1/mitigations/lift-all": {"rule": {"a"}},
	} {
		o.ask(0, operation, values, 200, nil)
	}
	for operation, values := range map[string]url.Values{
		"POST /api/v1/shards/drain":         {"shard": {"nowhere:1"}},
		"GET /api/v1/mitigations":           {"rule": {"b"}},
		"GET /api/v1/mitigations/{key}":     {"key": {strings.Repeat("0", 32)}},
		"POST /api/v1/mitigations/lift":     {"rule": {"a"}, "ip": {"192.0.2.1"}},
		"POST /api/v1/mitigations":          {"rule": {"b"}, "duration": {"1m"}, "reason": {"r"}},
		"POST /api/v1/mitigations/lift-all": {"rule": {"b"}},
		"GET /api/v1/explain":               {"id": {"0000-0000"}},
	} {
		o.ask(0, operation, values, 404, nil)
	}
	for operation, values := range map[string]url.Values{
		"GET /api/v1/mitigations":       {"cursor": {"x"}},
		"GET /api/v1/explain":           {"rule": {"a"}},
		"POST /api/v1/mitigations/lift": {"ip": {"192.0.2"}},
		"POST /api/v1/mitigations":      {"rule": {"a"}, "ip": {"192.0.2.1"}, "duration": {(15 * 24 * time.Hour).String()}, "reason": {"r"}},
	} {
		o.ask(0, operation, values, 400, nil)
	}
}
