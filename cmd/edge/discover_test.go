package main

import (
	"net/http"
	"testing"
)

// Without memcached, nodes use their own shards. They find each other's shards, count together, and continue
// when a node is killed together with its shard.
func TestNodesShareShards(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, fiftyAnHour, ownShards...)
	p.inRing(3)
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"} {
		if passed := p.exceed(client, 51); passed < 51 {
			t.Errorf("%d requests of %s passed at three nodes, want 51", passed, client)
		}
		p.refused(client)
	}
	if err := p.nodes[2].Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.nodes[2].End()
	killed := p.nodes[2]
	p.nodes = p.nodes[:2]
	// At first each node counts the keys of the dead shard alone.
	for _, client := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"} {
		p.exceed(client, 2*51)
		p.refused(client)
	}
	p.inRing(2)
	p.nodes = append(p.nodes, killed)
	p.start(2)
	p.nodes[2].ready(t)
	if got := p.nodes[2].as("192.0.2.1"); got != http.StatusTooManyRequests {
		t.Errorf("a restarted node answers %d, want %d", got, http.StatusTooManyRequests)
	}
	p.inRing(3)
	for _, n := range p.nodes {
		n.Terminate()
	}
}

// inRing waits until every node has this many shards in its ring and knows no others.
func (p *pointOfPresence) inRing(shards int) {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, "all shards are in the ring", func() bool {
			in, all := 0, metrics(p.t, n.metrics)
			for _, m := range all["edge_shard_in_ring"].GetMetric() {
				in += int(m.GetGauge().GetValue())
			}
			return in == shards && len(all["edge_shard_breaker_open"].GetMetric()) == shards
		})
	}
}
