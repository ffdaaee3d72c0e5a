package main

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// The output and the exit status of edge status show whether all is well.
func TestStatus(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 2, oneAWeek)
	exceed(t, p.nodes[0])
	n := p.nodes[0]
	code, out, err := edge("status", "--node", n.admin)
	if code != 0 || err != "" || !strings.HasPrefix(out, "node       n1, ready\n") || strings.Count(out, ": up\n") != 2 || !strings.HasSuffix(out, "mitigated  1: once 1\n") {
		t.Errorf("exit code %d, %q, status:\n%s", code, err, out)
	}
	if code, out, err := edge("mitigations", "lift", "--all", "--node", n.admin); code != 0 {
		t.Fatalf("exit code %d, %q, %q", code, out, err)
	}
	drained := p.shards[0]
	if code, out, err := edge("shards", "drain", drained, "--node", n.admin); code != 0 {
		t.Fatalf("exit code %d, %q, %q", code, out, err)
	}
	code, out, err = edge("status", "--node", n.admin)
	if code != 1 || !strings.HasPrefix(err, "edge: the node is unhealthy") || !strings.Contains(out, drained+": up, drained\n") || !strings.HasSuffix(out, "mitigated  0\nlifted     1\n") {
		t.Errorf("with a drained shard: exit code %d, %q, status:\n%s", code, err, out)
	}
	code, out, _ = edge("status", "--json", "--node", n.admin)
	if code != 1 || !strings.HasPrefix(out, `{"well":false,"node":"n1",`) || !strings.Contains(out, `"problems":[],"mitigations":{},"ineffective":0,"lifted":1,`) {
		t.Errorf("exit code %d, JSON:\n%s", code, out)
	}
	if code, _, err := edge("status", "--node", harness.ReservePort(t)); code != 1 || !strings.Contains(err, "connection refused") {
		t.Errorf("without a node: exit code %d, %q", code, err)
	}
}
