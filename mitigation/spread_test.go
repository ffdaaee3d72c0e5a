package mitigation_test

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edge/mitigation"
)

// A packet is an encoded record in flight between nodes.
type packet struct {
	at   time.Time
	to   int
	data []byte
}

type packets []packet

func (p packets) Len() int           { return len(p) }
func (p packets) Less(i, j int) bool { return p[i].at.Before(p[j].at) }
func (p packets) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)        { *p = append(*p, x.(packet)) }
func (p *packets) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// Each of eight nodes forwards a record to all others if the record is new to it, and sends its records to a
// random node once a second. Messages take up to two seconds. All nodes drop the record when it ends, at most
// one such delay late. Few messages are sent, because nodes do not forward copies.
func TestForwardedRecordsEnd(t *testing.T) {
	const nodes, lifetime, way = 8, time.Minute, 2 * time.Second
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var tables [nodes]*mitigation.Table
		for i := range tables {
			tables[i] = newTable(t, mitigation.Options{Size: 64})
		}
		var inTransit packets
		passedOn := 0
		send := func(from, to int, now time.Time) {
			r := tables[from].Get(key(1), now, acts)
			if r == nil || from == to {
				return
			}
			heap.Push(&inTransit, packet{now.Add(time.Duration(random.Int64N(int64(way)))), to, r.AppendSent(nil, now)})
		}
		toAll := func(from int, now time.Time) {
			for to := range nodes {
				send(from, to, now)
				passedOn++
			}
		}
		tables[0].Merge(record(lifetime), start)
		toAll(0, start)
		for now := start; now.Before(start.Add(10 * lifetime)); now = now.Add(time.Second) {
			for len(inTransit) > 0 && !inTransit[0].at.After(now) {
				p := heap.Pop(&inTransit).(packet)
				r, err := mitigation.ParseSent(p.data, p.at)
				if err != nil {
					t.Fatal(err)
				}
				if changed, _ := tables[p.to].Merge(r, p.at); changed {
					toAll(p.to, p.at)
				}
			}
			for from := range nodes {
				send(from, random.IntN(nodes), now)
			}
			if now.Before(start.Add(lifetime + way)) {
				continue
			}
			for i, table := range tables {
				if r := table.Get(key(1), now, acts); r != nil {
					t.Fatalf("seed %d: node %d mitigates %v after the end, until %v", seed, i, now.Sub(start)-lifetime, r.Deadline.Sub(start))
				}
			}
		}
		if passedOn > nodes*nodes {
			t.Fatalf("seed %d: the record was passed on %d times, want at most %d", seed, passedOn, nodes*nodes)
		}
	}
}
