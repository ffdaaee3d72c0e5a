package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// edge runs the command in this process and returns its exit code and output.
func edge(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// testLiftAll lifts all mitigations of a rule, after a dry run.
func testLiftAll(t *testing.T, p *pointOfPresence) {
	t.Helper()
	exceed(t, p.nodes[0])
	n := p.nodes[1]
	eventually(t, "the other node refuses again", func() bool { return n.status(t, "/once") == http.StatusTeapot })
	for _, tt := range []struct{ rule, dryRun, want string }{
		{"all", "true", "would be lifted: 0\n"},
		{"once", "true", "would be lifted: 1\n"},
		{"once", "false", "lifted: 1\n"},
		{"once", "false", "lifted: 0\n"},
	} {
		if code, out, err := edge("mitigations", "lift", "--all", "--rule", tt.rule, "--dry-run="+tt.dryRun, "--node", n.admin); code != 0 || out != tt.want {
			t.Errorf("lift all of %s, dry run %s: exit code %d, %q, %q; want %q", tt.rule, tt.dryRun, code, out, err, tt.want)
		}
	}
	if code, out, _ := edge("mitigations", "lift", "--all", "--json", "--node", n.admin); code != 0 || out != `{"mitigations":0,"dry_run":false,"unknown":0}`+"\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// An operator sees on one node a mitigation that another node started, and lifts it on all nodes.
func TestMitigations(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, oneAWeek)
	exceed(t, p.nodes[0])
	n := p.nodes[1]
	eventually(t, "the other node refuses", func() bool { return n.status(t, "/once") == http.StatusTeapot })
	code, out, _ := edge("mitigations", "--node", n.admin)
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, "once") || !strings.Contains(out, "; the limit is 1\n") {
		t.Errorf("exit code %d, mitigations:\n%s", code, out)
	}
	code, out, _ = edge("mitigations", "--json", "--node", p.nodes[0].admin)
	if code != 0 || !strings.Contains(out, `"rule":"once"`) || strings.Contains(out, "127.0.0.1") {
		t.Errorf("exit code %d, mitigations:\n%s", code, out)
	}
	code, out, err := edge("mitigations", "lift", "--rule", "once", "--ip", "127.0.0.1", "--node", n.admin)
	if code != 0 || out != "lifted\n" || err != "" {
		t.Errorf("lift: exit code %d, %q, %q", code, out, err)
	}
	eventually(t, "the client passes", func() bool {
		return p.nodes[0].status(t, "/once") == http.StatusOK || n.status(t, "/once") == http.StatusOK
	})
	if code, out, _ = edge("mitigations", "--node", n.admin); code != 0 || !strings.Contains(out, "lifted") {
		t.Errorf("exit code %d, mitigations after the lift:\n%s", code, out)
	}
	testLiftAll(t, p)
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"already lifted":     {[]string{"lift", "--rule", "all", "--ip", "127.0.0.1"}, 1, "by rule all, this client is not mitigated"},
		"unknown rule":       {[]string{"lift", "--rule", "none", "--ip", "127.0.0.1"}, 1, "edge: the node says: there is no rule none\n"},
		"invalid key":        {[]string{"lift", "--key", "xyz"}, 1, `"xyz" is not a key`},
		"invalid address":    {[]string{"lift", "--rule", "all", "--ip", "here"}, 2, `invalid --ip "here": must be an address`},
		"all with key":       {[]string{"lift", "--all", "--key", "x"}, 2, "--key contradicts --all"},
		"prefix without all": {[]string{"lift", "--prefix", "::/0"}, 2, "--prefix needs --all"},
		"invalid prefix":     {[]string{"lift", "--all", "--prefix", "::1"}, 2, `invalid --prefix "::1": must be a network`},
		"unlogged clients":   {[]string{"lift", "--all", "--prefix", "::/0"}, 1, "the node runs without --log-clients"},
		"all, unknown rule":  {[]string{"lift", "--all", "--rule", "none"}, 1, "there is no rule none"},
		"no arguments":       {[]string{"lift"}, 2, "give --key, or --rule and --ip"},
		"key with ip":        {[]string{"lift", "--key", "x", "--ip", "::1"}, 2, "give --key, or --rule and --ip"},
	} {
		code, _, err := edge(append([]string{"mitigations", "--node", n.admin}, test.args...)...)
		if code != test.code || !strings.Contains(err, test.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, err, test.code, test.want)
		}
	}
	code, _, err = edge("mitigations", "--node", harness.ReservePort(t))
	if code != 1 || !strings.Contains(err, "connection refused") || !strings.Contains(err, "hint: --node is the address") {
		t.Errorf("without a node: exit code %d, %q", code, err)
	}
	for _, n := range p.nodes {
		n.Terminate()
	}
}

// A customer complains. In a PoP of three nodes, the operator finds the reason on one node and lifts the
// mitigation on another. Then all nodes let the customer pass. Another client is mitigated by hand, with a
// token from a file.
func TestComplaint(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, oneAWeek)
	exceed(t, p.nodes[0])
	n := p.nodes[2]
	eventually(t, "the last node refuses", func() bool { return n.status(t, "/once") == http.StatusTeapot })
	for _, command := range [][]string{{"explain"}, {"mitigations", "explain"}} {
		code, out, err := edge(append(command, "127.0.0.1", "--node", n.admin)...)
		if code != 0 || !strings.Contains(out, "rule once: mitigated, action block\n") || !strings.Contains(out, "; the limit is 1\n") || err != "" {
			t.Errorf("%v: exit code %d, %q:\n%s", command, code, err, out)
		}
	}
	if code, out, err := edge("mitigations", "lift", "--rule", "once", "--ip", "127.0.0.1", "--reason", "the customer called", "--node", p.nodes[1].admin); code != 0 || out != "lifted\n" {
		t.Errorf("lift: exit code %d, %q, %q", code, out, err)
	}
	p.nodes[1].Wait(p.nodes[1].Stderr, `msg="admin change" by=local from=127\.0\.0\.1:\d+ do=mitigations-lift reason="the customer called" .*rule=once .*key=[0-9a-f]{32}\n`)
	for _, n := range p.nodes {
		// The second next request exceeds the limit again, so only the list shows the lift.
		eventually(t, "the lift is known", func() bool {
			_, out, _ := edge("mitigations", "list", "--state", "lifted", "--node", n.admin)
			return strings.Contains(out, "  lifted\n")
		})
	}
	by := []string{"mitigations", "add", "rule=all,ip=127.0.0.1", "--for", "15m", "--reason", "a test", "--node", p.nodes[0].admin}
	if code, out, err := edge(by...); code != 0 || !strings.HasPrefix(out, "mitigated for 15m0s, action block, key ") {
		t.Errorf("add: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "all nodes refuse by hand", func() bool { return n.status(t, "/") == http.StatusTooManyRequests })
		if _, out, _ := edge("mitigations", "list", "--rule", "all", "--limit", "3", "--node", n.admin); !strings.HasSuffix(out, "  by hand\n") {
			t.Errorf("mitigations by hand:\n%s", out)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"add without target":   {[]string{"add"}, 2, "takes an address, an ID, a key, or a rule"},
		"add without rule":     {[]string{"add", "192.0.2.1", "--for", "1m", "--reason", "r"}, 2, "the rule of the mitigation is missing"},
		"add without time":     {[]string{"add", "rule=all,ip=192.0.2.1", "--reason", "r"}, 2, "--for is missing"},
		"add without reason":   {[]string{"add", "rule=all,ip=192.0.2.1", "--for", "1m"}, 2, "--reason is missing"},
		"add a shorter one":    {[]string{"add", "rule=all,ip=127.0.0.1", "--for", "1m", "--reason", "r"}, 1, "is already mitigated for 1"},
		"list, unknown rule":   {[]string{"list", "--rule", "none"}, 1, "there is no rule none"},
		"add for under 1s":     {[]string{"add", "rule=all,ip=192.0.2.1", "--for", "1ns", "--reason", "r"}, 1, "a mitigation lasts at least 1s"},
		"add with extra value": {[]string{"add", "rule=all,ip=192.0.2.1,path=/x", "--for", "1m", "--reason", "r"}, 1, `rule all does not count by "path"`},
		"list, negative limit": {[]string{"list", "--limit", "-1"}, 2, "invalid --limit -1: must be"},
		"list, invalid key":    {[]string{"list", "--key", "192.0.2.1"}, 1, "in hexadecimal digits"},
		"list, invalid state":  {[]string{"list", "--state", "dead"}, 1, `state: "dead" is not one of active, ineffective, lifted`},
		"missing token file":   {[]string{"list", "--token-file", "none"}, 1, "--token-file: open none: no such file"},
		"invalid token file":   {[]string{"list", "--token-file", p.rules}, 1, "must contain a token and nothing else"},
		"unknown token":        {[]string{"list", "--token-file", p.dir + "/wrong"}, 1, "hint: the node does not know the token in " + p.dir + "/wrong"},
		"metrics listener":     {[]string{"list", "--node", p.nodes[0].metrics}, 1, "is not a node's admin listener: it answers 404 Not Found\nedge: hint: --node is"},
		"invalid --node":       {[]string{"list", "--node", "http://"}, 2, "is not HOST:PORT"},
	} {
		write(t, p.dir+"/wrong", strings.Repeat("x", 20))
		code, _, err := edge(append([]string{"mitigations", "--node", p.nodes[0].admin}, tt.args...)...)
		if code != tt.code || !strings.Contains(err, tt.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, err, tt.code, tt.want)
		}
	}
	if code, out, err := edge("mitigations", "lift", "--all", "--node", n.admin); code != 0 || !strings.HasPrefix(out, "lifted: ") {
		t.Errorf("lift all: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "all nodes pass", func() bool { return n.status(t, "/") == http.StatusOK })
	}
	for _, n := range p.nodes {
		n.Terminate()
	}
}

// Operators have their own tokens, in a file that is reloaded when it changes.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/tokens", "anna "+strings.Repeat("a", 20)+"\n")
	write(t, dir+"/anna", strings.Repeat("a", 20)+"\n")
	write(t, dir+"/ben", strings.Repeat("b", 20)+"\n")
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--admin-tokens="+dir+"/tokens")
	lift := func(args ...string) (int, string) {
		code, _, err := edge(append([]string{"mitigations", "lift", "--all", "--node", n.admin}, args...)...)
		return code, err
	}
	if code, err := lift(); code != 1 || !strings.Contains(err, "hint: run this as the node's user or as root, or give --token-file or EDGE_TOKEN") {
		t.Errorf("without a token: exit code %d, %q", code, err)
	}
	if code, err := lift("--token-file", dir+"/anna"); code != 0 {
		t.Errorf("anna: exit code %d, %q", code, err)
	}
	if code, err := lift("--token-file", dir+"/ben"); code != 1 {
		t.Errorf("ben: exit code %d, %q", code, err)
	}
	replace(t, dir+"/tokens", "ben "+strings.Repeat("b", 20)+"\n")
	eventually(t, "ben may lift", func() bool { code, _ := lift("--token-file", dir+"/ben"); return code == 0 })
	if code, _ := lift("--token-file", dir+"/anna"); code != 1 {
		t.Error("anna may still lift")
	}
	n.Wait(n.Stderr, `msg="admin change" by=ben .*do=mitigations-lift-all`)
	n.Terminate()
	if code, _, err := edge("node", "--rules="+n.rules, "--origin=http://127.0.0.1:1", "--listen=127.0.0.1:0", "--admin-tokens="+dir); code != 1 && code != 2 || !strings.Contains(err, "admin-tokens") {
		t.Errorf("a directory of tokens: exit code %d, %q", code, err)
	}
}

// A shard that is drained on one node leaves the ring of all nodes.
func TestShards(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, generous)
	shard := p.shards[1]
	if code, out, err := edge("shards", "drain", shard, "--node", p.nodes[0].admin); code != 0 || out != "drained\n" {
		t.Errorf("drain: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "the shard is out", func() bool {
			_, out, _ := edge("shards", "--node", n.admin)
			return strings.Contains(out, shard+"  up     no, drained  0.0%\n")
		})
	}
	if code, out, err := edge("shards", "undrain", shard, "--node", "http://"+p.nodes[1].admin+"/"); code != 0 || out != "undrained\n" {
		t.Errorf("undrain: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "the shard is in", func() bool {
			_, out, _ := edge("shards", "--json", "--node", n.admin)
			return !strings.Contains(out, `"in_ring":false`) && strings.Count(out, `"in_ring":true`) == 2
		})
	}
	if code, _, err := edge("shards", "drain", "nowhere:1", "--node", p.nodes[0].admin); code != 1 || !strings.Contains(err, "there is no shard nowhere:1") {
		t.Errorf("drain of an unknown shard: exit code %d, %q", code, err)
	}
	if code, _, err := edge("shards", "drain"); code != 2 || !strings.Contains(err, "edge shards drain takes one shard") {
		t.Errorf("drain without a shard: exit code %d, %q", code, err)
	}
	for _, n := range p.nodes {
		n.Terminate()
	}
}
