package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// What is kept is that of clients who are active, however long the log.
func TestMemoryIsThatOfActiveClients(t *testing.T) {
	set, err := rule.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 2, period: 10s}], mitigation_timeout: 5s}]"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSimulation(PoPOptions{Nodes: 2, Shards: 2}, set)
	if err != nil {
		t.Fatal(err)
	}
	x, err := newExactPoP(PoPOptions{}, set)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	const perSecond = 10
	for i := range 20_000 {
		e := accesslog.Entry{Time: begin + int64(i)*1e6/perSecond, Client: fmt.Sprint(i / 4), Path: "/"}
		s.Decide(&e)
		req := new(requests).of(&e)
		x.decide(&e, &req)
	}
	items := 0
	for _, shard := range s.shards {
		items += len(shard.items)
		expiring := 0
		for _, keys := range shard.expiring {
			expiring += len(keys)
		}
		if expiring > 2*len(shard.items)+perSecond || len(shard.due) != len(shard.expiring) {
			t.Errorf("%d keys wait to expire, in %d and %d seconds, of %d items", expiring, len(shard.due), len(shard.expiring), len(shard.items))
		}
	}
	// 2.5 clients a second, each with a counter for 26 s, perhaps two, and a record for 15.
	if most := 3 * 27 * 3; items == 0 || items > most {
		t.Errorf("%d items are in the shards, want %d at most", items, most)
	}
	logs := &x.rules[0].logs
	if n := len(logs.young) + len(logs.old); n == 0 || n > 3*20 {
		t.Errorf("%d exact logs, want those of 20 s", n)
	}
	if n := len(s.spread.connections.young) + len(s.spread.connections.old); n == 0 || n > 3*120 {
		t.Errorf("%d connections, want those of two minutes", n)
	}
	if n := x.table.Len(); n > 3*20 {
		t.Errorf("%d records, want those of 20 s", n)
	}
}

// A client that makes one request takes little memory, however many estimators there are.
func TestMemoryOfPassersBy(t *testing.T) {
	a, err := NewAccuracy(AccuracyOptions{Limits: []Limit{{50, 60e6}}, Phases: 4, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]accesslog.Arrival, 0, 10_000)
	add := func(at int64, client int) {
		a := accesslog.Arrival{Time: at}
		copy(a.Client[:], fmt.Sprint(client))
		batch = append(batch, a)
	}
	for i := range cap(batch) {
		add(int64(i)*1e6, max(i, 9_900)) // one comes again and again
	}
	if err := a.Add(batch); err != nil {
		t.Fatal(err)
	}
	report := a.Report()
	if report.Clients != 100 {
		t.Fatalf("%d clients, want 100", report.Clients)
	}
	for _, w := range a.workers {
		if got := w.groups[0].placed; got != 1 {
			t.Errorf("%d clients have words of their own, want the one with more than one request", got)
		}
	}
}
