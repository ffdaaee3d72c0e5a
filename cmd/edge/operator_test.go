package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/operate"
)

// edge runs the command in this process and returns its exit code and output.
func edge(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// An operation is a command that asks a node.
type operation struct {
	command string
	code    int
	want    []string // parts of the output
}

// check runs the command against n.
func (o operation) check(t *testing.T, n *node) {
	t.Helper()
	code, stdout, stderr := edge(append(strings.Fields(o.command), "--node", n.admin)...)
	for _, want := range o.want {
		if code != o.code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("edge %s: exit code %d, want %d and %q:\n%s%s", o.command, code, o.code, want, stdout, stderr)
		}
	}
}

// shows waits until a command writes text.
func (n *node) shows(t *testing.T, text, command string) {
	t.Helper()
	eventually(t, command+" shows "+text, func() bool {
		_, out, _ := edge(append(strings.Fields(command), "--node", n.admin)...)
		return strings.Contains(out, text)
	})
}

// A list has the mitigations of all pages.
func TestMitigationsOnSeveralPages(t *testing.T) {
	pages := map[string]operate.Mitigations{
		"":     {Mitigations: []operate.Mitigation{{Key: "01", About: "client 192.0.2.1"}}, Total: 2, Next: "1-01"},
		"1-01": {Mitigations: []operate.Mitigation{{Key: "02", About: "client 192.0.2.2"}}, Total: 2},
	}
	asked := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > len(pages) {
			t.Errorf("asked for %s", r.URL)
			http.Error(w, "", http.StatusInternalServerError)
		} else if err := json.NewEncoder(w).Encode(pages[r.URL.Query().Get("cursor")]); err != nil {
			t.Error(err)
		}
	}))
	defer node.Close()
	code, stdout, stderr := edge("mitigations", "--json", "--node", strings.TrimPrefix(node.URL, "http://"))
	if code != 0 || !strings.Contains(stdout, "192.0.2.1") || !strings.Contains(stdout, "192.0.2.2") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

// A customer complains. In a PoP of three nodes, the operator finds the reason on one node and lifts the
// mitigation on another. Then all nodes let the customer pass. Another client is mitigated by hand, and a shard is
// drained.
func TestOperator(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, oneAWeek+`  - {id: api, match: {paths: [/api]}, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 5, period: 1h}]}
  - {id: session, characteristics: [{first: ["cookie:sid", ip]}], limits: [{threshold: 9, period: 1h}]}
deny: [203.0.113.0/24]
`)
	const client = "192.0.2.7"
	first, other, last := p.nodes[0], p.nodes[1], p.nodes[2]
	for range 2 {
		first.askFor(client, "/once")
	}
	ids := map[string]bool{}
	for _, n := range p.nodes {
		eventually(t, "each node refuses", func() bool {
			a := n.askFor(client, "/once")
			ids[a.Header.Get("Refusal-Id")] = a.StatusCode == http.StatusTeapot
			return a.StatusCode == http.StatusTeapot
		})
	}
	delete(ids, "") // of passed requests
	var id string
	for id = range ids {
	}
	if len(ids) != 1 || !regexp.MustCompile(`^[0-9a-z]{4}-[0-9a-z]{4}$`).MatchString(id) {
		t.Fatalf("three nodes returned IDs %v, want one", ids)
	}
	last.ready(t)
	denied := last.ask("203.0.113.7").Header.Get("Refusal-Id")
	_, text, _ := edge("mitigations", "--node", last.admin)
	key := regexp.MustCompile(`[0-9a-f]{32}`).FindString(text)
	for _, o := range []operation{
		{"explain 192.0.2.7", 0, []string{
			"rule once: mitigated, action block\n  counts 192.0.2.7\n  key " + key + "\n  its refusals have the ID " + id + "\n  why: ", // more than two requests may pass before all nodes refuse
			" in 7d (0 in the week before, ", " in this one); the limit is 1\n",
			"to end it now: edge mitigations lift " + key + " --node " + last.admin + "\n", "rule all: not mitigated\n", "; the limit is 100000; ", " more allowed\n",
			"rule api: counts by ip and header:x-api-key, so more values are needed\n  edge explain rule=api,ip=192.0.2.7,header:x-api-key=… --node " + last.admin + "\n",
			"rule session: counts by first:cookie:sid,ip, so more values are needed\n  edge explain rule=session,cookie:sid=… --node " + last.admin + "\n",
		}},
		{"explain " + id, 0, []string{"rule once: mitigated, action block\n"}},
		{"explain " + key, 0, []string{"rule once: mitigated, action block\n  counts ip (fingerprint " + key[:8] + ")\n  key " + key + "\n"}},
		{"explain 192.0.2.1", 0, []string{"rule once: not mitigated\n", "  now: 0 in 7d (0 in the week before, 0 in this one); the limit is 1; 1 more allowed\n"}},
		{"explain rule=api,ip=192.0.2.7,header:x-api-key=a,b", 0, []string{"rule api: not mitigated\n", "; the limit is 5; 5 more allowed\n"}},
		{"explain rule=session,cookie:sid=a", 0, []string{"rule session: not mitigated\n"}},
		{"explain rule=all,ip=192.0.2.7 --json", 0, []string{`"rule":"all","action":"block","about":"192.0.2.7","limits":[{"threshold":100000,"period_s":60,`}},
		{"explain " + denied, 0, []string{"deny list: refused with 403 by entry 203.0.113.0/24\n  to allow it, remove the entry from the rules files\n"}},
		{"explain 0000-0000", 1, []string{"no active mitigation has the ID 0000-0000"}},
		{"explain login", 2, []string{`"login" is not an address, a network, an ID such as 7kq2-m9xd, or a key`}},
		{"explain ip=x", 1, []string{`"x" is not an address`}},
		{"explain", 2, []string{"takes an address, a network, an ID, a key, or a rule and its values"}},
		{"mitigations", 0, []string{"KEY", key, "  once  block   ", "; the limit is 1\n"}},
		{"mitigations --json", 0, []string{`"rule":"once"`, `"total":1`}},
		{"status", 0, []string{"node       n3, ready\n", ": up\n", "mitigated  1: once 1\n"}},
		{"mitigations lift --all --rule all --dry-run", 0, []string{"would be lifted: 0\n"}},
		{"mitigations lift --all --rule once --dry-run", 0, []string{"would be lifted: 1\n"}},
	} {
		o.check(t, last)
	}

	operation{"mitigations lift 192.0.2.7 --reason called", 0, []string{"lifted: rule once, 192.0.2.7, key " + key + "\n"}}.check(t, other)
	other.Wait(other.Stderr, `msg="admin change" by=local from=127\.0\.0\.1:\d+ do=mitigations-lift reason=called key=[0-9a-f]{32}\n`)
	for _, n := range p.nodes {
		n.shows(t, "  lifted\n", "mitigations --state lifted")
	}
	operation{"mitigations --state lifted", 0, []string{key + "  -        once  -       "}}.check(t, last)
	operation{"explain " + key, 0, []string{"rule once: not mitigated: lifted at node "}}.check(t, first)
	if got := last.askFor(client, "/once").StatusCode; got != http.StatusOK {
		t.Errorf("status %d after the lift, want 200", got)
	}
	operation{"mitigations add rule=all,ip=192.0.2.7 --for 15m --reason test", 0, []string{"mitigated for 15m0s: 192.0.2.7, rule all, action block, key ", "to end it: edge mitigations lift "}}.check(t, first)
	for _, n := range p.nodes {
		eventually(t, "all nodes refuse after a mitigation by hand", func() bool { return n.statusFor(client) == http.StatusTooManyRequests })
		n.shows(t, "  by hand\n", "mitigations --rule all")
	}
	operation{"mitigations lift --all", 0, []string{"lifted: "}}.check(t, last)
	operation{"changes", 0, []string{"  mitigations-lift-all dry_run=false mitigations="}}.check(t, last)
	for _, n := range p.nodes {
		eventually(t, "all nodes let the client pass", func() bool { return n.statusFor(client) == http.StatusOK })
	}

	drained := p.shards[1]
	operation{"shards drain " + drained, 0, []string{"drained\n"}}.check(t, first)
	for _, n := range p.nodes {
		n.shows(t, drained+"  up     no, drained  0.0%\n", "shards")
	}
	operation{"status", 1, []string{"edge: the node or its PoP is unhealthy", drained + ": up, drained\n", "lifted     "}}.check(t, last)
	operation{"status --json", 1, []string{`{"well":false,"node":"n3",`, `"problems":[]`}}.check(t, last)
	operation{"shards undrain " + drained, 0, []string{"undrained\n"}}.check(t, other)
	for _, n := range p.nodes {
		n.shows(t, drained+"  up     yes", "shards")
	}

	write(t, p.dir+"/wrong", strings.Repeat("x", 20))
	for _, o := range []operation{
		{"shards drain", 2, []string{"edge shards drain takes one of the shards that edge shards lists"}},
		{"shards drain nowhere:1", 1, []string{"there is no shard nowhere:1"}},
		{"mitigations lift rule=none,ip=::1", 1, []string{": there is no rule none\n"}},
		{"mitigations lift 198.51.100.1", 1, []string{": no mitigation acts on 198.51.100.1\n"}},
		{"mitigations lift 203.0.113.7", 1, []string{": the deny list refuses this client: remove 203.0.113.0/24 from the rules files\n"}},
		{"mitigations lift rule=api,ip=192.0.2.7,header:x-api-key=", 1, []string{": rule api does not mitigate this client\n"}},
		{"mitigations lift rule=all,ip=here", 1, []string{`"here" is not an address`}},
		{"mitigations lift --all x", 2, []string{"give one target, or --all"}},
		{"mitigations lift", 2, []string{"give one target, or --all"}},
		{"mitigations lift --client ::/0", 2, []string{"--client needs --all"}},
		{"mitigations lift --all --client ::/0", 1, []string{"the node runs without --log-clients"}},
		{"mitigations lift --key x", 2, []string{"unknown flag --key\nedge: hint: give the key as the argument"}},
		{"mitigations --state x", 2, []string{"must be current, active, logged, ineffective, lifted or all"}},
		{"mitigations add 192.0.2.0/24 --for 1m --reason r", 2, []string{"192.0.2.0/24 is a network\nedge: hint: add it to deny in the rules files"}},
		{"mitigations add rule=all,ip=192.0.2.1 --for 15d --reason r", 2, []string{"must be a duration from 1s to 14d"}},
		{"mitigations add rule=all,ip=192.0.2.1 --reason r", 2, []string{"missing --for"}},
		{"mitigations add rule=all,ip=192.0.2.1 --for 1m", 2, []string{"missing --reason"}},
		{"mitigations --token-file none", 1, []string{"--token-file: none: no such file"}},
		{"mitigations --token-file " + p.rules, 1, []string{"must contain a token and nothing else"}},
		{"mitigations lift --all --token-file " + p.dir + "/wrong", 1, []string{"hint: run this as the node's user or as root, or give a token that it knows"}},
	} {
		o.check(t, first)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, addr := range []struct {
		node string
		operation
	}{
		{first.metrics, operation{"status", 1, []string{"is not a node's admin listener: it answers 404 Not Found\nedge: hint: --node is"}}},
		{first.http, operation{"explain ::1", 1, []string{"is not a node's admin listener: it answers 200 OK\n"}}},
		{"192.0.2.7", operation{"shards", 2, []string{"is not HOST:PORT or http://HOST:PORT"}}},
		{"http://" + first.admin + "/", operation{"reload", 0, []string{"loaded 4 rules; this frees 0 mitigated clients\n"}}},
		{first.admin, operation{"changes", 0, []string{"  local  127.0.0.1:", "  reload  "}}},
		{first.admin, operation{"rules", 0, []string{"once\n  ", "\n  mitigates 0 now; refused ", "the files have not changed since they were loaded\n"}}},
		{first.admin, operation{"nodes", 0, []string{"n1    ready  ", "n2    ready  ", "n3    ready  "}}},
		{silent.Addr().String(), operation{"status", 1, []string{" accepts connections, but has not answered for 5s\nedge: hint: the node hangs or is overloaded"}}},
		{harness.ReservePort(t), operation{"status", 1, []string{"connection refused\nedge: hint: --node is the address"}}},
	} {
		addr.check(t, &node{admin: addr.node})
	}
}

// Operators have their own tokens, in a file that is reloaded when it changes.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, letter := range map[string]string{"anna": "a", "ben": "b"} {
		write(t, dir+"/"+name, strings.Repeat(letter, 20)+"\n")
	}
	tokens := func(name string) { replace(t, dir+"/tokens", name+" "+strings.Repeat(name[:1], 20)+"\n") }
	tokens("anna")
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--admin-tokens="+dir+"/tokens")
	lift := func(args ...string) (int, string) {
		code, _, err := edge(append([]string{"mitigations", "lift", "--all", "--node", n.admin}, args...)...)
		return code, err
	}
	if code, err := lift(); code != 1 || !strings.Contains(err, "hint: run this as the node's user or as root, or give a token that it knows") {
		t.Errorf("without a token: exit code %d, %q", code, err)
	}
	if code, err := lift("--token-file", dir+"/anna"); code != 0 {
		t.Errorf("anna: exit code %d, %q", code, err)
	}
	tokens("ben")
	eventually(t, "ben may lift", func() bool { code, _ := lift("--token-file", dir+"/ben"); return code == 0 })
	if code, _ := lift("--token-file", dir+"/anna"); code != 1 {
		t.Error("anna may still lift")
	}
	n.Wait(n.Stderr, `msg="admin change" by=ben .*do=mitigations-lift-all`)
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"7KQ2 m9xd":                             {"id": "7kq2-m9xd"},
		"2001:db8::1":                           {"ip": "2001:db8::1"},
		"192.0.2.0/24":                          {"network": "192.0.2.0/24"},
		"header:x-key=b":                        {"header:x-key": "b"},
		strings.Repeat("0a", 16):                {"key": strings.Repeat("0a", 16)},
		"rule=a,method=GET,network:24/64=::/64": {"rule": "a", "method": "GET", "network:24/64": "::/64"},
		"rule=a,header:x-key=b,c=d,cookie:e==":  {"rule": "a", "header:x-key": "b,c=d", "cookie:e": "="},
	} {
		if got, err := parseTarget(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("parseTarget(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"ip=192.0.2.1,ip=192.0.2.2":           "ip is given twice",
		"rule=a,header:x-key=,header:x-key=b": "header:x-key is given twice",
	} {
		if got, err := parseTarget(text); err == nil || err.Error() != want {
			t.Errorf("parseTarget(%q) = %v, %v; want the error %q", text, got, err, want)
		}
	}
}

// A mitigation by hand has no request that exceeded a limit, because an operator started it.
func TestExplainByHand(t *testing.T) {
	var out strings.Builder
	m := &operate.Mitigation{Client: "192.0.2.1", ByHand: true}
	(&operate.KeyState{Mitigation: m, About: "192.0.2.1"}).WriteText(&out, "", "")
	if !strings.Contains(out.String(), "\n  counts 192.0.2.1\n") || strings.Contains(out.String(), "crossed") {
		t.Errorf("by hand:\n%s", &out)
	}
}
