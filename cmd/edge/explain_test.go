package main

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop/admin"
)

// Any node explains why a client is refused, how far it is from other limits, and which values it needs for
// rules that count by more than an address.
func TestExplain(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, oneAWeek+`  - {id: api, match: {paths: [/api]}, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 5, period: 1h}]}
  - {id: session, characteristics: [{first: ["cookie:sid", ip]}], limits: [{threshold: 9, period: 1h}]}
`)
	for range 2 { // the next request comes once these are counted
		p.nodes[0].status(t, "/once")
	}
	n := p.nodes[1]
	eventually(t, "the other node knows", func() bool { return value(t, metrics(t, n.metrics), "edge_mitigation_records") == 1 })
	var key string
	for _, tt := range []struct {
		target string
		want   []string
		not    string
	}{
		{"127.0.0.1", []string{
			"rule once: mitigated, action block\n  key ", "  why: 2 in 7d (0 in the week before, 2 in this one); the limit is 1\n", "to end it now: edge mitigations lift --key ",
			"rule all: not mitigated\n", "; the limit is 100000; ", " more allowed\n",
			"rule api: counts by ip and header:x-api-key, so an address is not enough\n  edge explain rule=api,ip=127.0.0.1,header:x-api-key=…\n",
			"rule session: counts by first:cookie:sid,ip, so an address is not enough\n  edge explain rule=session,cookie:sid=…\n",
		}, "note:"},
		{"192.0.2.1", []string{"rule once: not mitigated\n", "  now: 0 in 7d (0 in the week before, 0 in this one); the limit is 1; 1 more allowed\n"}, "action"},
		{"rule=once,ip=127.0.0.1", []string{"rule once: mitigated, action block\n"}, "rule all"},
		{"rule=api,ip=127.0.0.1,header:x-api-key=a,b", []string{"rule api: not mitigated\n", "; the limit is 5; 5 more allowed\n"}, "rule all"},
		{"rule=session,cookie:sid=a", []string{"rule session: not mitigated\n"}, "rule all"},
		{"rule=session,cookie:sid=a,ip=127.0.0.1", []string{"rule session: not mitigated\n"}, "rule all"},
	} {
		code, out, err := edge("explain", tt.target, "--node", n.admin)
		for _, want := range tt.want {
			if code != 0 || err != "" || !strings.Contains(out, want) || strings.Contains(out, tt.not) {
				t.Errorf("%s: exit code %d, %q, want %q and no %q:\n%s", tt.target, code, err, want, tt.not, out)
			}
		}
		if _, rest, ok := strings.Cut(out, "lift --key "); ok && key == "" {
			key = strings.Fields(rest)[0]
		}
	}
	if code, out, err := edge("explain", key, "--node", n.admin); code != 0 || !strings.HasPrefix(out, "rule once: mitigated, action block\n  key "+key+"\n") {
		t.Errorf("%s: exit code %d, %q, %q", key, code, out, err)
	}
	if code, out, _ := edge("explain", "rule=all,ip=127.0.0.1", "--json", "--node", n.admin); code != 0 || !strings.Contains(out, `"rule":"all","action":"block","limits":[{"threshold":100000,"period_s":60,`) {
		t.Errorf("exit code %d, JSON:\n%s", code, out)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown rule":    {[]string{"rule=none,ip=::1"}, 1, "there is no rule none"},
		"missing value":   {[]string{"rule=api,ip=::1"}, 1, "rule api counts by header:x-api-key, which has no value"},
		"extra value":     {[]string{"rule=once,ip=::1,path=/once"}, 1, `rule once does not count by "path"`},
		"client listener": {[]string{"::1", "--node", n.http}, 1, "is not a node's admin listener: it answers 200 OK\nedge: hint: --node is"},
		"no port":         {[]string{"::1", "--node", "127.0.0.1"}, 2, `"127.0.0.1" is not HOST:PORT`},
		"invalid address": {[]string{"rule=once,ip=here"}, 1, `"here" is not an address`},
		"no rule":         {[]string{"host=a"}, 1, "give an ip, the ID of a refusal, a key, or a rule and its values"},
		"not mitigated":   {[]string{strings.Repeat("0", 32)}, 1, "is not mitigated; give the rule and its values"},
		"not hexadecimal": {[]string{strings.Repeat("x", 32)}, 1, "is not a key"},
		"unknown kind":    {[]string{"login"}, 2, `"login" is not an address, an ID such as 7kq2-m9xd, or a key`},
		"no argument":     {nil, 2, "takes an address, an ID, a key, or a rule and its values"},
		"no node":         {[]string{"::1", "--node", harness.ReservePort(t)}, 1, "connection refused"},
	} {
		code, _, err := edge(append([]string{"explain", "--node", n.admin}, tt.args...)...)
		if code != tt.code || !strings.Contains(err, tt.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, err, tt.code, tt.want)
		}
	}
}

// Refusals of a client have the same ID on all nodes, and each node explains the ID until the mitigation is
// lifted.
func TestExplainID(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, oneAWeek+"deny: [203.0.113.0/24]\n")
	exceed(t, p.nodes[0])
	ids := map[string]bool{}
	for _, n := range p.nodes {
		eventually(t, "each node refuses", func() bool {
			resp := get(t, http.DefaultClient, "http://"+n.http+"/once")
			if resp.StatusCode == http.StatusTeapot {
				ids[resp.Header.Get("Refusal-Id")] = true
			}
			return resp.StatusCode == http.StatusTeapot
		})
	}
	id := slices.Collect(maps.Keys(ids))[0]
	if len(ids) != 1 || !regexp.MustCompile(`^[0-9a-z]{4}-[0-9a-z]{4}$`).MatchString(id) {
		t.Fatalf("three nodes returned IDs %v, want one", ids)
	}
	r, err := http.NewRequest("GET", "http://"+p.nodes[0].http+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	denied := resp.Header.Get("Refusal-Id")
	for target, want := range map[string]string{
		id: "rule once: mitigated, action block\n  key ",
		strings.ToUpper(strings.ReplaceAll(id, "-", " ")): "  its refusals have the ID " + id + "\n  why: ", // the number of passed requests varies
		denied:        "deny list: refused with 403 by entry 203.0.113.0/24\n  to allow it, remove the entry from the rules files\n",
		"203.0.113.7": "by entry 203.0.113.0/24\n",
	} {
		if code, out, err := edge("explain", target, "--node", p.nodes[2].admin); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %q, want %q:\n%s", target, code, err, want, out)
		}
	}
	if code, out, err := edge("mitigations", "lift", "--rule", "once", "--ip", "127.0.0.1", "--node", p.nodes[1].admin); code != 0 {
		t.Fatalf("exit code %d, %q, %q", code, out, err)
	}
	eventually(t, "another node knows of the lift", func() bool {
		_, out, _ := edge("explain", id, "--node", p.nodes[2].admin)
		return strings.Contains(out, "rule once: not mitigated: lifted at node ")
	})
	if code, _, err := edge("explain", "0000-0000", "--node", p.nodes[2].admin); code != 1 || !strings.Contains(err, "no active mitigation has the ID 0000-0000") || !strings.Contains(err, "refusal_id=0000-0000") {
		t.Errorf("exit code %d, %q", code, err)
	}
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]url.Values{
		"7KQ2 m9xd":                             {"id": {"7kq2-m9xd"}},
		"2001:db8::1":                           {"ip": {"2001:db8::1"}},
		strings.Repeat("0a", 16):                {"key": {strings.Repeat("0a", 16)}},
		"rule=a,ip=192.0.2.1":                   {"rule": {"a"}, "ip": {"192.0.2.1"}},
		"rule=a,method=GET,network:24/64=::/64": {"rule": {"a"}, "method": {"GET"}, "network:24/64": {"::/64"}},
		"rule=a,ip=192.0.2.1,label:asn=64496":   {"rule": {"a"}, "ip": {"192.0.2.1"}, "label:asn": {"64496"}},
		"rule=a,header:x-key=b,c=d,cookie:e==":  {"rule": {"a"}, "header:x-key": {"b,c=d"}, "cookie:e": {"="}},
	} {
		if got, err := parseTarget(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("parseTarget(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

// There is no request that exceeded a limit, since the operator started the mitigation.
func TestExplainByHand(t *testing.T) {
	var out strings.Builder
	m := &admin.Mitigation{Client: "192.0.2.1", ByHand: true}
	writeKeyState(&out, &admin.KeyState{Mitigation: m}, "")
	if !strings.Contains(out.String(), "\n  client: 192.0.2.1\n") || strings.Contains(out.String(), "crossed") {
		t.Errorf("by hand:\n%s", &out)
	}
}
