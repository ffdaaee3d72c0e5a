package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// A pointOfPresence is several edge node processes that gossip and share two shards.
type pointOfPresence struct {
	t      *testing.T
	dir    string
	shards []string
	rules  string
	keys   string // file
	nodes  []*node
	addrs  []string // gossip addresses
}

// ownShards stands for the shards inside the nodes.
var ownShards = []string{"own", "own"}

// startProcesses starts a PoP of edge node processes. If no shards are given, it starts two.
func startProcesses(t *testing.T, nodes int, rules string, shards ...string) *pointOfPresence {
	t.Helper()
	p := &pointOfPresence{t: t, dir: t.TempDir(), shards: shards}
	for len(p.shards) < 2 {
		_, addr, _ := startShard(t)
		p.shards = append(p.shards, addr)
	}
	p.rules, p.keys = p.dir+"/rules.yaml", p.dir+"/keys"
	write(t, p.rules, rules)
	write(t, p.keys, gossipKey(1))
	write(t, p.dir+"/secret", "a secret of the tests")
	for i := range nodes {
		p.nodes, p.addrs = append(p.nodes, nil), append(p.addrs, "")
		p.start(i)
	}
	p.whole()
	return p
}

func gossipKey(n byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+n)), 32))) + "\n"
}

// start starts the ith node, which joins the others.
func (p *pointOfPresence) start(i int) {
	p.t.Helper()
	args := []string{fmt.Sprint("--name=n", i+1), "--origin=" + newOrigin(p.t).URL, "--secret-file=" + p.dir + "/secret",
		"--gossip-listen=127.0.0.1:0", "--gossip-key-file=" + p.keys, "--trusted-proxy=127.0.0.0/8"}
	if p.shards[0] == ownShards[0] {
		args = append(args, "--shard-listen=127.0.0.1:0")
	} else {
		args = append(args, "--shard="+strings.Join(p.shards, ","))
	}
	for j, addr := range p.addrs {
		if j != i && addr != "" {
			args = append(args, "--join="+addr)
		}
	}
	p.nodes[i] = startNodeOf(p.t, p.rules, args...)
	p.addrs[i] = regexp.MustCompile(`gossip=(\S+)`).FindStringSubmatch(p.nodes[i].Stderr.String())[1]
}

// whole waits until all nodes are members of each other's gossip.
func (p *pointOfPresence) whole() {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, "all nodes are members", func() bool {
			return value(p.t, metrics(p.t, n.metrics), "edge_gossip_members") == float64(len(p.nodes))
		})
	}
}

// ready waits until a node reports ready.
func (n *node) ready(t *testing.T) {
	t.Helper()
	eventually(t, "the node is ready", func() bool {
		a, err := try(http.DefaultClient, "http://"+n.metrics+"/readyz")
		return err == nil && a.StatusCode == http.StatusOK
	})
}

// status requests a path from a node and returns the status.
func (n *node) status(t *testing.T, path string) int {
	t.Helper()
	return get(t, http.DefaultClient, "http://"+n.http+path).StatusCode
}

// The nodes of a PoP are processes. A client that one node mitigates is mitigated by all, even by nodes that
// have counted nothing. A node that restarts knows the mitigation when it is ready. Gossip keys are replaced
// while the nodes run.
func TestGossipBetweenProcesses(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, oneAWeek)
	exceed(t, p.nodes[0])
	for _, n := range p.nodes[1:] {
		eventually(t, "the others refuse", func() bool { return n.status(t, "/once") == http.StatusTeapot })
		if got := value(t, metrics(t, n.metrics), "edge_mitigations_learned_total", "source", "peer"); got < 1 {
			t.Errorf("%v mitigations were learned from peers, want at least 1", got)
		}
	}

	// The node is killed and restarted without state. When it is ready, it refuses the first request without
	// asking a shard.
	if err := p.nodes[2].Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.nodes[2].End()
	p.start(2)
	p.nodes[2].ready(t)
	if got := p.nodes[2].status(t, "/once"); got != http.StatusTeapot {
		t.Errorf("status %d after a restart, want %d", got, http.StatusTeapot)
	}
	if got := value(t, metrics(t, p.nodes[2].metrics), "edge_mitigations_learned_total", "source", "shard"); got != 0 {
		t.Errorf("%v mitigations were learned from the shard, want 0", got)
	}
	p.whole()

	for _, keys := range []string{gossipKey(1) + gossipKey(2), gossipKey(2) + gossipKey(1), "# the new one\n" + gossipKey(2)} {
		replace(t, p.keys, keys)
		mark := make([]int, len(p.nodes))
		for i, n := range p.nodes {
			mark[i] = n.Stderr.Len()
			n.Signal(syscall.SIGHUP)
		}
		for i, n := range p.nodes {
			n.WaitSince(n.Stderr, mark[i], `rules loaded`)
		}
	}
	late := startNodeOf(t, p.rules, "--name=late", "--origin="+newOrigin(t).URL, "--gossip-listen=127.0.0.1:0", "--gossip-key-file="+p.keys, "--join="+p.addrs[0])
	late.ready(t)
	eventually(t, "a node with the new key is a member", func() bool { return value(t, metrics(t, late.metrics), "edge_gossip_members") == 4 })
	for _, n := range append(p.nodes, late) {
		n.Terminate()
	}
}

// A node that finds no peer still becomes ready.
func TestGossipWithoutPeers(t *testing.T) {
	t.Parallel()
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--gossip-listen=127.0.0.1:0", "--join="+harness.ReservePort(t))
	n.ready(t)
	if got := n.status(t, "/"); got != http.StatusOK {
		t.Errorf("status %d, want 200", got)
	}
	n.Terminate()
}

// Keys can be given without a file. A node with other keys does not become a member.
func TestGossipKeys(t *testing.T) {
	t.Parallel()
	first := startNode(t, generous, "--name=a", "--origin="+newOrigin(t).URL, "--gossip-listen=127.0.0.1:0", "--gossip-key="+strings.TrimSpace(gossipKey(1)))
	addr := regexp.MustCompile(`gossip=(\S+)`).FindStringSubmatch(first.Stderr.String())[1]
	for key, members := range map[string]float64{gossipKey(2): 1, strings.TrimSpace(gossipKey(2)) + "," + gossipKey(1): 1, gossipKey(1): 2} {
		other := startNode(t, generous, "--name=b", "--origin="+newOrigin(t).URL, "--gossip-listen=127.0.0.1:0", "--join="+addr, "--gossip-key="+strings.TrimSpace(key))
		other.ready(t)
		eventually(t, "the members are those with the key", func() bool { return value(t, metrics(t, other.metrics), "edge_gossip_members") == members })
		other.Terminate()
	}
	first.Terminate()
}
