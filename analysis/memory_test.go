package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Memory use depends on the number of active clients, not on the length of the log.
func TestMemoryDependsOnActiveClients(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 2, period: 10s}], mitigation_timeout: 5s}]"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSimulation(PoPOptions{Nodes: 2, Shards: 2}, set)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	const perSecond = 10
	for i := range 8_000 {
		e := accesslog.Entry{Time: begin + int64(i)*1e6/perSecond, Client: fmt.Sprint(i / 4), Path: "/"}
		s.Decide(&e)
	}
	items := 0
	for _, shard := range s.shards {
		items += len(shard.counters) + len(shard.records)
	}
	// There are 2.5 clients a second. Each has one or two counters for 26 s and a record for 15 s. Expired items
	// are only removed when there are many.
	if most := 2 * (fewestItems + 2*(3*27*2+3*16)); items == 0 || items > most {
		t.Errorf("%d items in the shards, want at most %d", items, most)
	}
	if n := s.spread.connections.len(); n == 0 || n > 3*120 {
		t.Errorf("%d connections, want those of two minutes", n)
	}
}

// An instantPoP forgets keys that no longer have an effect.
func TestMemoryDependsOnActiveKeys(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip, path], limits: [{threshold: 2, period: 10s}], mitigation_timeout: 5s}]"))
	if err != nil {
		t.Fatal(err)
	}
	p := newRulesPlayer(rule.ClientPrefix{}, set)
	all := p.instant(set, 0, true)
	p.done = func(*replayedRequest) {}
	for i := range 20_000 {
		p.add(&accesslog.Entry{Time: int64(i) * 1e5, Client: "1", Path: fmt.Sprint("/", i/4)})
	}
	p.finish()
	// 2.5 keys a second, for 20 to 40 s, plus those of a batch.
	n := uint32(0) // number of keys
	for _, x := range all {
		n += x.members[0].table.young.Len()
	}
	if n == 0 || n > 3*40 {
		t.Errorf("%d keys, want those of 40 s", n)
	}
}

// len returns an upper bound on the number of values: a value in young and old counts twice.
func (a *agingTable[V]) len() int {
	n := a.young.Len()
	if a.old != nil {
		n += a.old.Len()
	}
	return int(n)
}
