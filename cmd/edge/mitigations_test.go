package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// edge runs the command in this process and returns its exit code and what it wrote.
func edge(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// An operator sees on one node what started on another, and lifts it for all.
func TestMitigations(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, oneAnHour)
	exceed(t, p.nodes[0])
	n := p.nodes[1]
	eventually(t, "the other node refuses", func() bool { return n.status(t, "/once") == http.StatusTeapot })
	code, out, _ := edge("mitigations", "--node", n.metrics)
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, " > 1\n") {
		t.Errorf("exit code %d, mitigations:\n%s", code, out)
	}
	code, out, _ = edge("mitigations", "--json", "--node", p.nodes[0].metrics)
	if code != 0 || !strings.Contains(out, `"rule":"once"`) || strings.Contains(out, "127.0.0.1") {
		t.Errorf("exit code %d, mitigations:\n%s", code, out)
	}
	code, out, err := edge("mitigations", "lift", "--rule", "once", "--ip", "127.0.0.1", "--node", n.metrics)
	if code != 0 || out != "lifted\n" || err != "" {
		t.Errorf("lift: exit code %d, %q, %q", code, out, err)
	}
	eventually(t, "the client passes at both nodes", func() bool {
		return p.nodes[0].status(t, "/once") == http.StatusOK || n.status(t, "/once") == http.StatusOK
	})
	if code, out, _ = edge("mitigations", "--node", n.metrics); code != 0 || !strings.Contains(out, "lifted") {
		t.Errorf("exit code %d, mitigations after the lift:\n%s", code, out)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"lifted already": {[]string{"lift", "--rule", "all", "--ip", "127.0.0.1"}, 1, "is not mitigated"},
		"no such rule":   {[]string{"lift", "--rule", "none", "--ip", "127.0.0.1"}, 1, "edge: the node says: there is no rule none\n"},
		"no key":         {[]string{"lift", "--key", "xyz"}, 1, `"xyz" is no key`},
		"no address":     {[]string{"lift", "--rule", "all", "--ip", "here"}, 2, `--ip: "here" is not an address`},
		"nothing":        {[]string{"lift"}, 2, "give --key, or --rule and --ip"},
		"too much":       {[]string{"lift", "--key", "x", "--ip", "::1"}, 2, "give --key, or --rule and --ip"},
	} {
		code, _, err := edge(append([]string{"mitigations", "--node", n.metrics}, test.args...)...)
		if code != test.code || !strings.Contains(err, test.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, err, test.code, test.want)
		}
	}
	code, _, err = edge("mitigations", "--node", unused(t))
	if code != 1 || !strings.Contains(err, "connection refused") || !strings.Contains(err, "hint: --node is the address") {
		t.Errorf("without a node: exit code %d, %q", code, err)
	}
	for _, n := range p.nodes {
		n.terminate()
	}
}

// A shard is drained at one node, and out of the ring of all.
func TestShards(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, generous)
	shard := p.shards[1]
	if code, out, err := edge("shards", "drain", shard, "--node", p.nodes[0].metrics); code != 0 || out != "drained\n" {
		t.Errorf("drain: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "the shard is out", func() bool {
			_, out, _ := edge("shards", "--node", n.metrics)
			return strings.Contains(out, shard+"  up     no, drained\n")
		})
	}
	if code, out, err := edge("shards", "undrain", shard, "--node", "http://"+p.nodes[1].metrics+"/"); code != 0 || out != "undrained\n" {
		t.Errorf("undrain: exit code %d, %q, %q", code, out, err)
	}
	for _, n := range p.nodes {
		eventually(t, "the shard is in", func() bool {
			_, out, _ := edge("shards", "--json", "--node", n.metrics)
			return !strings.Contains(out, `"in_ring":false`) && strings.Count(out, `"in_ring":true`) == 2
		})
	}
	if code, _, err := edge("shards", "drain", "nowhere:1", "--node", p.nodes[0].metrics); code != 1 || !strings.Contains(err, "there is no shard nowhere:1") {
		t.Errorf("drain of no shard: exit code %d, %q", code, err)
	}
	if code, _, err := edge("shards", "drain"); code != 2 || !strings.Contains(err, "edge shards drain takes one shard") {
		t.Errorf("drain of nothing: exit code %d, %q", code, err)
	}
	for _, n := range p.nodes {
		n.terminate()
	}
}
