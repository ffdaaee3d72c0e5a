package async_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// Two nodes count at full speed while shards go out and come back, leave and join, at any time and
// on each node independently. In the end every request was counted by exactly one shard.
//
// No bound is reached, however slow the machine is: all requests come at one time, so those of a key
// take one place in the queue.
func TestEveryRequestIsCountedOnceWhileShardsChange(t *testing.T) {
	const keys, requests, nodes, shards = 300, 10_000, 2, 4
	period := counter.Limit{Period: 3600e6, Layout: counter.Plain}
	p := startPop(t, nodes, shards, true, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}]}]")
	now := time.Now()
	first, _ := counter.Window(now, period.Period)
	var made ledger
	clients := func() (list []async.Shard) {
		for i := range p.shards {
			list = append(list, &recordedShard{memcached.New(fmt.Sprintf("s%d:11211", i), wire.Options{Dial: p.shards[i].dial, Timeout: time.Minute}), &made})
		}
		return list
	}
	mine := make([][]async.Shard, nodes)
	for i, l := range p.limiters {
		mine[i] = clients()
		if err := l.SetShards(mine[i]); err != nil {
			t.Fatal(err)
		}
	}
	whileDeciding(t, p, keys, requests, now, func(i int, l *limit.Limiter, random *rand.Rand) {
		members, out := someShards(mine[i], random.IntN)
		if err := l.SetShards(members, out...); err != nil {
			t.Error(err)
		}
	})
	for _, l := range p.limiters {
		if err := l.SetShards(clients()); err != nil {
			t.Error(err)
		}
	}
	p.cancel() // Run drains
	p.limited.Wait()

	total := made.sum(counter.Plain, items(p, keys, first, period)...)
	if want := uint64(nodes * 2 * requests); total != want {
		t.Errorf("%d requests are counted, want %d", total, want)
	}
	for i, registry := range p.registries {
		if n := value(t, registry, "edge_increments_dropped_total", ""); n != 0 {
			t.Errorf("node %d has dropped %v requests, %v of them from a full queue", i, n, value(t, registry, "edge_increments_dropped_total", "queue_full"))
		}
	}
	p.stop()
}

// A change of the ring lets a client use up the threshold at most once more, in whatever order the
// nodes make it within the time to settle, and however the client spreads its requests over them. It
// sends as much as it can.
func TestRequestsPassedDuringChange(t *testing.T) {
	check(t, func(rt *rapid.T) {
		nodes, shards := rapid.IntRange(1, 4).Draw(rt, "nodes"), rapid.IntRange(2, 4).Draw(rt, "shards")
		threshold, peers := rapid.IntRange(5, 40).Draw(rt, "threshold"), rapid.Bool().Draw(rt, "peers")
		client, subWindows := rapid.Uint32Range(0, 20).Draw(rt, "client"), rapid.IntRange(1, 6).Draw(rt, "sub-windows")
		before := rapid.IntRange(0, threshold).Draw(rt, "before")
		asked := rapid.SliceOfN(rapid.IntRange(0, nodes-1), before+180, before+180).Draw(rt, "asked")
		// In milliseconds. The last request of the 900 ms is sent after 895 ms, so every node follows.
		follows := rapid.SliceOfN(rapid.IntRange(0, 895), nodes, nodes).Draw(rt, "follows")
		out := fmt.Sprintf("s%d:11211", rapid.IntRange(0, shards-1).Draw(rt, "out"))
		wrong := "" // reported outside the bubble, so that rapid can minimize the case
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, nodes, shards, peers, fmt.Sprintf(
				"rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m, sub_windows: %d}], mitigation_timeout: 1m}]", threshold, subWindows))
			defer p.stop()
			passed := 0
			ask := func(n int) {
				req := request(client)
				if d := p.limiters[n].Decide(&req, time.Now()); !d.Verdict.Refused() {
					passed++
				}
				time.Sleep(5 * time.Millisecond) // it is counted before the next
			}
			for _, n := range asked[:before] {
				ask(n)
			}
			begin := time.Now()
			for _, n := range asked[before:] { // for 900 ms
				for i, l := range p.limiters {
					if time.Since(begin) >= time.Duration(follows[i])*time.Millisecond {
						if err := l.SetOut(out); err != nil {
							t.Error(err)
						}
					}
				}
				ask(n)
			}
			time.Sleep(2 * time.Second)
			for n := range nodes { // each reads what it has not seen, or the record
				ask(n)
			}
			if most := 2*threshold + nodes; passed > most {
				wrong = fmt.Sprintf("%d requests passed, want at most %d", passed, most)
			}
			settled := passed
			for n := range nodes {
				ask(n)
			}
			if passed > settled {
				wrong = fmt.Sprintf("%d requests passed after the change has settled", passed-settled)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// A shard that was out of the ring for a while lacks what was counted elsewhere. It has lost nothing.
func TestShardThatWasOutHasLostNothing(t *testing.T) {
	for _, subWindows := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, 1, 2, false, fmt.Sprintf(
				"rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1m, sub_windows: %d}]}]", subWindows))
			defer p.stop()
			for range 3 {
				for _, out := range [][]string{nil, {"s0:11211"}, nil, {"s1:11211"}} {
					if err := p.limiters[0].SetOut(out...); err != nil {
						t.Fatal(err)
					}
					for range 3 {
						decide(t, p.limiters[0], 20, 100, time.Now())
						time.Sleep(100 * time.Millisecond)
					}
				}
				time.Sleep(40 * time.Second) // to the next window
			}
			if n := value(t, p.registries[0], "edge_counters_fallen_total", ""); n != 0 {
				t.Errorf("with %d sub-windows, %v counters have lost counts", subWindows, n)
			}
		})
	}
}

// decide decides this many requests of clients that arrive at now, a hundred at a time, so that
// flushes come in between.
func decide(t *testing.T, l *limit.Limiter, clients uint32, requests int, now time.Time) {
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for i := range requests {
		if i%100 == 0 {
			<-ticker.C
		}
		req := request(rand.Uint32N(clients))
		if d := l.Decide(&req, now); d.Verdict != limit.Passed {
			t.Errorf("request %d: %v", i, d.Verdict)
		}
	}
}

// whileDeciding sends requests of two clients to each node, and calls change repeatedly for each node
// in the meantime.
func whileDeciding(t *testing.T, p *testPop, keys uint32, requests int, now time.Time, change func(i int, l *limit.Limiter, random *rand.Rand)) {
	t.Helper()
	var deciding, changing sync.WaitGroup
	decided := make(chan struct{})
	for i, l := range p.limiters {
		changing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 2))
			ticker := time.NewTicker(3 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-decided:
					return
				case <-ticker.C:
					change(i, l, random)
				}
			}
		})
		for range 2 {
			deciding.Go(func() { decide(t, l, keys, requests, now) })
		}
	}
	deciding.Wait()
	close(decided)
	changing.Wait()
}

// someShards returns random shards, and the names of those that are out.
func someShards(all []async.Shard, intN func(int) int) (members []async.Shard, out []string) {
	for _, s := range all {
		switch intN(4) {
		case 0:
			out = append(out, s.Addr())
			fallthrough
		case 1, 2:
			members = append(members, s)
		}
	}
	return members, out
}

// A recordedShard records the increments that were made. Replies must not be lost.
type recordedShard struct {
	async.Shard
	made *ledger
}

func (s *recordedShard) Exchange(b *counter.Batch) error {
	err := s.Shard.Exchange(b)
	for i := range b.Increments {
		if op := &b.Increments[i]; op.Outcome == counter.Done {
			s.made.add(op)
		}
	}
	return err
}

// items returns the counters of the first rule's keys for a limit, in the first window and the next.
func items(p *testPop, keys uint32, first int64, l counter.Limit) (items []counter.Item) {
	for client := range keys {
		req := request(client)
		req.Canonicalize(rule.ClientPrefix{IPv4: 32, IPv6: 64})
		what, _ := p.limiters[0].Rules().Rules()[0].AppendKey(nil, &req)
		tag := p.secret.Tag(what)
		for window := first; window <= first+1; window++ {
			items = append(items, p.secret.CounterItem(tag, l, window))
		}
	}
	return items
}

// A node that missed a mitigation finds its record at the former owner of the key, and stores it at the new one.
func TestRecordAtFormerShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const clients = 16
		p := startPop(t, 3, 2, false, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 5, period: 1s}], mitigation_timeout: 1h}]")
		defer p.stop()
		refused := func(node int) (n int) {
			for client := range uint32(clients) {
				req := request(client)
				if d := p.limiters[node].Decide(&req, time.Now()); d.Verdict.Refused() {
					n++
				}
			}
			time.Sleep(10 * time.Millisecond)
			return n
		}
		for range 6 {
			refused(0)
		}
		time.Sleep(10 * time.Second) // the counts have left the period
		for _, l := range p.limiters {
			if err := l.SetOut("s0:11211"); err != nil {
				t.Fatal(err)
			}
		}
		if n := refused(1); n != 0 {
			t.Fatalf("%d clients are mitigated by a node that learned of none", n)
		}
		if n := refused(1); n != clients {
			t.Errorf("%d of %d clients are mitigated after their first request", n, clients)
		}
		p.shards[0].kill()
		refused(2)
		if n := refused(2); n != clients {
			t.Errorf("%d of %d clients are mitigated by a node that knows only what the new owner has", n, clients)
		}
	})
}
