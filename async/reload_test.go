package async_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A client that is innocent by the estimates of both the layout before a reload and the one after
// it is not refused, even if older requests weigh more in one and younger ones in the other: here
// both estimates are at most 50, while the requests from before the reload weigh 12.5 in whole
// windows, and those after it 50 in sub-windows.
func TestReloadRefusesNoInnocentClient(t *testing.T) {
	now := time.Unix(6000, 0)
	limiters := steppedPop(t, 2, func() time.Time { return now }, io.Discard, subWindows(1))
	ask := func(node int) {
		t.Helper()
		for i := range 25 {
			req := request(1)
			if d := limiters[node].Decide(&req, now); d.Verdict != limit.Passed {
				t.Fatalf("at %v request %d is %v: %v", now.Unix(), i+1, d.Verdict, d.Record.Why)
			}
			for _, l := range limiters {
				l.Flush()
				l.Step()
			}
		}
	}
	ask(0)
	now = time.Unix(6040, 0)
	for _, l := range limiters {
		l.SetRules(parse(t, subWindows(6)))
	}
	now = time.Unix(6055, 0)
	ask(1)
	now = time.Unix(6090, 0)
	ask(0)
}

// Each change of the sub-windows lets through at most the threshold once more.
func TestTwoReloadsInOnePeriod(t *testing.T) {
	for _, layouts := range [][3]int{{6, 3, 1}, {6, 1, 1}, {1, 6, 3}, {1, 6, 1}, {6, 1, 6}, {6, 4, 6}} {
		now := time.Unix(6010, 0) // in the second of six sub-windows
		l := steppedPop(t, 1, func() time.Time { return now }, io.Discard, subWindows(layouts[0]))[0]
		ask := func(requests int) (passed int) {
			for range requests {
				req := request(1)
				if d := l.Decide(&req, now); !d.Verdict.Refused() {
					passed++
				}
				l.Flush()
				l.Step()
			}
			return passed
		}
		first := ask(20)
		now = now.Add(10 * time.Second)
		l.SetRules(parse(t, subWindows(layouts[1])))
		second := ask(20)
		now = now.Add(10 * time.Second)
		l.SetRules(parse(t, subWindows(layouts[2])))
		if third := ask(60); first != 20 || second != 20 || third < 10 || third > 51 {
			t.Errorf("%v: %d, %d and %d requests pass in 20 s, want 20, 20 and 10 to 51", layouts, first, second, third)
		}
		now = time.Unix(6000+180, 0) // all of them have left the period
		if passed := ask(60); passed < 50 || passed > 51 {
			t.Errorf("%v: %d requests pass two minutes later, want 50", layouts, passed)
		}
	}
}

// subWindows returns a rule of 50 requests a minute with this many sub-windows.
func subWindows(n int) string {
	return fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m, sub_windows: %d}]}]", n)
}

// With random reloads, at a different time on each node, clients that are innocent by every estimate
// are never refused. If nodes reload at the same time, nobody exceeds the bound that follows from the worst estimate
// and the number of reloads.
func TestPromisesOverReloads(t *testing.T) {
	check(t, func(rt *rapid.T) {
		period := time.Duration(rapid.Int64Range(6, 30).Draw(rt, "period")) * time.Second
		now := time.Unix(6000, rapid.Int64Range(0, period.Microseconds()).Draw(rt, "phase")*1000)
		var used []promised
		load := func() *rule.Set {
			l := promised{50, period, rapid.Int64Range(1, 6).Draw(rt, "sub-windows"), counter.Weighted}
			if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				l.kind = counter.WholeOldest
			} else if l.n == 1 && rapid.Bool().Draw(rt, "fixed") {
				l.kind = counter.Fixed
			}
			used = append(used, l)
			return parse(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: %v, sub_windows: %d, estimate: %s}]}]",
				l.threshold, l.period, l.n, l.kind))
		}
		nodes, apart := rapid.IntRange(1, 3).Draw(rt, "nodes"), rapid.Bool().Draw(rt, "apart")
		limiters := steppedPop(t, nodes, func() time.Time { return now }, io.Discard, subWindows(1))
		first := load()
		for _, l := range limiters {
			l.SetRules(first)
		}
		careful := rapid.Bool().Draw(rt, "careful") // never over, by any estimate
		over := func(events []event) bool {
			return slices.ContainsFunc(used, func(l promised) bool { return l.over(events, events[len(events)-1].at) })
		}
		var events []event
		innocent, refused := true, false
		ask := func() {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(rt, "ms")) * time.Millisecond)
			all := append(events, event{at: now})
			is := !over(all)
			if careful && !is {
				return
			}
			innocent = innocent && is
			l := limiters[rapid.IntRange(0, nodes-1).Draw(rt, "node")]
			req := request(1)
			d := l.Decide(&req, now)
			l.Flush()
			l.Step()
			refused = refused || d.Verdict.Refused()
			events = append(events, event{now, !d.Verdict.Refused()})
			if innocent && refused {
				rt.Fatalf("an innocent client is refused after %d requests at %v: %v\n%+v\n%v", len(events), now, d.Record.Why, used, events)
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "bursts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, period.Microseconds()/2).Draw(rt, "pause")) * time.Microsecond)
			if rapid.Bool().Draw(rt, "reload") {
				set := load()
				for _, l := range limiters {
					l.SetRules(set)
					if apart {
						now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(rt, "later")) * time.Millisecond)
						ask()
					}
				}
			}
			for range rapid.IntRange(0, 60).Draw(rt, "requests") {
				ask()
			}
		}
		// Without peers, each of the other nodes passes one more request before it reads the record. A fixed window
		// lets one more through as well. Each reload may let the threshold through once more.
		if most, bound := mostPassed(events, period), (2+len(used)-1)*(50+nodes+1); !apart && most > bound {
			rt.Fatalf("%d requests passed in %v, the bound is %d: %+v\n%v", most, period, bound, used, events)
		}
	})
}

// A soloShard fails the test if its node has two increments of a counter in flight.
type soloShard struct {
	async.Shard
	t     *testing.T
	mu    sync.Mutex
	asked map[counter.Item]bool // guarded by mu: increments without a reply, by counter
}

func (s *soloShard) Exchange(b *counter.Batch) error {
	mark := func(asked bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, op := range b.Increments {
			if s.asked[op.Item] == asked {
				s.t.Error("two increments of one counter are in flight at the same time")
			}
			s.asked[op.Item] = asked
		}
	}
	mark(true)
	defer mark(false)
	return s.Shard.Exchange(b)
}

// Two nodes count at full speed while each independently loads rules with other sub-windows. In the
// end every request was counted once or, if it waited while its limit changed, dropped and counted as such. No counter ever
// had two increments of one node in flight.
func TestEveryRequestIsCountedOnceWhileSubWindowsChange(t *testing.T) {
	const keys, requests, nodes = 50, 5000, 2
	p := startPop(t, nodes, 1, true, hourly(1))
	now := time.Now()
	first, _ := counter.Window(now, 3600e6)
	var made ledger
	for _, l := range p.limiters {
		client := &recordedShard{memcached.New("s0:11211", wire.Options{Dial: p.shards[0].dial, Timeout: time.Minute}), &made}
		if err := l.SetShards([]async.Shard{&soloShard{Shard: client, t: t, asked: map[counter.Item]bool{}}}); err != nil {
			t.Fatal(err)
		}
	}
	whileDeciding(t, p, keys, requests, now, func(_ int, l *limit.Limiter, random *rand.Rand) {
		l.SetRules(parse(t, hourly(1+random.IntN(4))))
	})
	p.cancel() // Run drains
	p.limited.Wait()

	total := uint64(0)
	for fields := 1; fields <= 4; fields++ {
		l, _ := counter.LayoutOf(fields)
		total += made.sum(l, items(p, keys, first, counter.Limit{Period: 3600e6, Layout: l})...)
	}
	for _, reg := range p.registries {
		total += uint64(value(t, reg, "edge_increments_dropped_total", "limit_changed"))
	}
	if want := uint64(nodes * 2 * requests); total != want {
		t.Errorf("%d requests are counted or dropped, want %d", total, want)
	}
	p.stop()
}

// hourly returns a rule of 5000 requests an hour with this many sub-windows.
func hourly(n int) string {
	return fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: 5000, period: 1h, sub_windows: %d}]}]", n)
}
