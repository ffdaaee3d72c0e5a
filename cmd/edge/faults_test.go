package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop/admin"
)

// as sends a request of a client to a node and returns the status, or 0 if there is no answer.
func (n *node) as(client string) int {
	r, err := http.NewRequest("GET", "http://"+n.http+"/", nil)
	if err != nil {
		return 0
	}
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// fiftyAnHour is a rule that innocent clients of a test do not exceed.
const fiftyAnHour = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 50, period: 1h}], mitigation_timeout: 1h}\n"

// attack sends requests of a client to the nodes in turn until one is refused, and returns how many passed.
func (p *pointOfPresence) attack(client string) (passed int) {
	p.t.Helper()
	for passed = range 10000 {
		switch status := p.nodes[passed%len(p.nodes)].as(client); status {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return passed
		default:
			p.t.Fatalf("%s got status %d", client, status)
		}
	}
	p.t.Fatalf("%s is never refused", client)
	return 0
}

// exceed sends requests of a client to the nodes in turn until one is refused, at most most, and returns how
// many passed. If none is refused, all nodes must mitigate the client without another request, however late
// they count on a busy machine.
func (p *pointOfPresence) exceed(client string, most int) (passed int) {
	p.t.Helper()
	var before []float64
	for _, n := range p.nodes {
		before = append(before, value(p.t, metrics(p.t, n.metrics), "edge_mitigation_records"))
	}
	for ; passed < most; passed++ {
		switch status := p.nodes[passed%len(p.nodes)].as(client); status {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return passed
		default:
			p.t.Fatalf("%s got status %d", client, status)
		}
	}
	for i, n := range p.nodes {
		eventually(p.t, fmt.Sprintf("%s is mitigated after %d requests", client, most), func() bool {
			return value(p.t, metrics(p.t, n.metrics), "edge_mitigation_records") > before[i]
		})
	}
	return passed
}

// refused waits until every node refuses a client.
func (p *pointOfPresence) refused(client string) {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, "every node refuses", func() bool { return n.as(client) == http.StatusTooManyRequests })
	}
}

// begin sends requests of a client to the nodes in turn, too few for a mitigation.
func (p *pointOfPresence) begin(client string, requests int) {
	p.t.Helper()
	for i := range requests {
		if status := p.nodes[i%len(p.nodes)].as(client); status != http.StatusOK {
			p.t.Fatalf("%s got status %d", client, status)
		}
	}
}

// shardsAre waits until ok holds for all shards on all nodes.
func (p *pointOfPresence) shardsAre(what string, ok func(admin.Shard) bool) {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, what, func() bool {
			var answer struct{ Shards []admin.Shard }
			if err := json.Unmarshal([]byte(get(p.t, http.DefaultClient, "http://"+n.admin+"/api/v1/shards").body), &answer); err != nil {
				p.t.Fatal(err)
			}
			return !slices.ContainsFunc(answer.Shards, func(s admin.Shard) bool { return !ok(s) })
		})
	}
}

// Shards are killed and restarted, and stopped and continued, twelve times under load. No innocent client is
// refused, no request fails, and mitigated clients stay mitigated. Clients that attack meanwhile are refused,
// before or after a change of the ring: each change lets a client pass the threshold at most once more.
func TestShardsComeAndGo(t *testing.T) {
	t.Parallel()
	var shards []*harness.Memcached
	var addrs []string
	for range 3 {
		m := harness.StartMemcached(t)
		shards, addrs = append(shards, m), append(addrs, m.Addr)
	}
	p := startProcesses(t, 3, fiftyAnHour, addrs...)
	p.attack("192.0.2.66")
	p.refused("192.0.2.66")

	var failed, refused, leaked atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i, n := range p.nodes {
		load.Go(func() {
			for request := 0; ; request++ {
				select {
				case <-stop:
					return
				default:
				}
				// Forty requests of each client are innocent, whether counts are lost or not.
				switch n.as(fmt.Sprintf("10.%d.%d.%d", i, request/40/250, request/40%250)) {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					failed.Add(1)
				}
				if n.as("192.0.2.66") != http.StatusTooManyRequests {
					leaked.Add(1)
				}
			}
		})
	}
	for round := range 12 {
		m := shards[round%len(shards)]
		p.shardsAre("the shard is back", func(s admin.Shard) bool { return s.Addr != m.Addr || !s.Down && s.InRing })
		attacker := fmt.Sprintf("198.51.100.%d", round)
		const before = 40
		p.begin(attacker, before)
		if round%4 < 2 {
			m.Kill()
		} else {
			m.Stall()
		}
		if round == 5 || round == 11 {
			p.shardsAre("the shard leaves the ring", func(s admin.Shard) bool { return s.InRing == (s.Addr != m.Addr) })
		}
		// Each node counts the shard's keys alone until another shard owns them.
		p.exceed(attacker, (len(p.nodes)+1)*51-before)
		p.refused(attacker)
		if round%4 < 2 {
			m.Restart()
		} else {
			m.Resume()
		}
	}
	close(stop)
	load.Wait()
	if failed.Load()+refused.Load()+leaked.Load() > 0 {
		t.Errorf("%d requests failed, %d of innocent clients were refused, %d of a mitigated one passed; want none", failed.Load(), refused.Load(), leaked.Load())
	}
	for _, n := range p.nodes {
		n.Terminate()
	}
}
