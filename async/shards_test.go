package async_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
)

const manyPerMinute = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1m}]}]"

// ask sends a client's request to a node, and returns how many of its earlier requests the node
// knew, -1 if unknown. The threshold is 1000.
func ask(l *limit.Limiter, client uint32) int {
	req := request(client)
	now := time.Now()
	d := l.Look(&req, now)
	quotas := l.Quotas(nil, &d, now) // before the request can be counted
	l.Decide(&req, now)
	for _, q := range quotas {
		if q.Known {
			return 1000 - int(q.Remaining)
		}
	}
	return -1
}

// wantKnown sends two requests of each client to a node, the second when the first is counted, and
// fails unless the node then knows this many earlier requests.
func wantKnown(t *testing.T, what string, l *limit.Limiter, clients uint32, before int) {
	t.Helper()
	for client := range clients {
		ask(l, client)
	}
	time.Sleep(10 * time.Millisecond)
	for client := range clients {
		if known := ask(l, client); known != before+1 {
			t.Errorf("%s: %d requests of client %d are known, want %d", what, known, client, before+1)
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// setOut takes shards, given by index, out on all nodes.
func (p *testPop) setOut(t *testing.T, shards ...int) {
	t.Helper()
	var names []string
	for _, i := range shards {
		names = append(names, fmt.Sprintf("s%d:11211", i))
	}
	for _, l := range p.limiters {
		if err := l.SetOut(names...); err != nil {
			t.Fatal(err)
		}
	}
}

// What a node that changes its shards later has counted meanwhile is found without another request, even if a window
// begins in between.
func TestFormerShardIsReadOnceSettled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 2, true, fmt.Sprintf(perMinute, 10, "1h"))
		defer p.stop()
		begin := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(begin.Add(-300 * time.Millisecond)))
		const clients = 20
		decide := func(l *limit.Limiter, times int, want limit.Verdict) {
			t.Helper()
			for client := range uint32(clients) {
				for range times {
					req := request(client)
					if d := l.Decide(&req, time.Now()); d.Verdict != want {
						t.Errorf("client %d is %v, want %v", client, d.Verdict, want)
					}
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		early, late := p.limiters[0], p.limiters[1]
		decide(early, 1, limit.Passed)
		if err := early.SetOut("s0:11211"); err != nil {
			t.Fatal(err)
		}
		decide(early, 5, limit.Passed)
		time.Sleep(200 * time.Millisecond)
		decide(late, 5, limit.Passed) // at the former owner
		if err := late.SetOut("s0:11211"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(time.Second)))
		decide(early, 1, limit.Blocked) // 11 requests were counted
	})
}

// A node that changes its shards after a window begins learns what others counted at the new owners before.
func TestChangeInTheNextWindow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 2, false, manyPerMinute)
		defer p.stop()
		const clients = 20
		early, late := p.limiters[0], p.limiters[1]
		begin := time.Now().Truncate(time.Minute).Add(time.Minute)
		out := func(l *limit.Limiter) {
			if err := l.SetOut("s0:11211"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Until(begin.Add(-400 * time.Millisecond)))
		out(early)
		for client := range uint32(clients) {
			for range 10 {
				ask(early, client)
			}
		}
		time.Sleep(time.Until(begin.Add(100 * time.Millisecond)))
		for client := range uint32(clients) {
			ask(late, client) // reads the previous window, at the former owners
		}
		time.Sleep(10 * time.Millisecond)
		out(late)
		wantKnown(t, "in the previous window and this one", late, clients, 10+1)
	})
}

// Shards go out, come back, leave the list and join it while requests are counted: every
// node knows of every request.
func TestCountsFollowTheShards(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 3, 4, true, manyPerMinute)
		defer p.stop()
		const clients = 40
		wantKnown(t, "at first", p.limiters[0], clients, 0)
		p.setOut(t, 1)
		wantKnown(t, "one is out", p.limiters[1], clients, 2)
		p.setOut(t, 1, 2)
		wantKnown(t, "two are out", p.limiters[2], clients, 4)
		p.setOut(t)
		wantKnown(t, "all are back", p.limiters[0], clients, 6)

		set := func(l *limit.Limiter, shards ...int) {
			t.Helper()
			if err := l.SetShards(p.clients(shards...), "s3:11211", "none:11211"); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range p.limiters {
			set(l, 0, 2, 3) // one leaves, one is out
		}
		wantKnown(t, "one has left the list", p.limiters[1], clients, 8)
		time.Sleep(2 * time.Second)
		for _, l := range p.limiters {
			set(l, 1, 2) // it joins again, others leave
		}
		wantKnown(t, "one joins again", p.limiters[2], clients, 10)
		// The next window weighs what was counted everywhere in this one.
		time.Sleep(time.Minute - time.Since(time.Now().Truncate(time.Minute)))
		wantKnown(t, "in the next window", p.limiters[0], clients, 12)
	})
}

// Requests that a shard did not accept are counted by the key's new owner as soon as the shard is
// out, or once any shard is in again.
func TestWaitingCountsMove(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 3, 2, true, manyPerMinute)
		defer p.stop()
		const clients = 20
		p.shards[0].kill()
		for range 3 {
			for client := range uint32(clients) {
				ask(p.limiters[0], client)
			}
			time.Sleep(300 * time.Millisecond)
		}
		p.setOut(t, 0)
		time.Sleep(10 * time.Millisecond)
		wantKnown(t, "a dead shard went out", p.limiters[1], clients, 3)

		p.setOut(t, 0, 1)
		wantKnown(t, "nobody is in", p.limiters[0], clients, 3)
		p.setOut(t, 0)
		time.Sleep(10 * time.Millisecond)
		wantKnown(t, "one is in again", p.limiters[2], clients, 7)
	})
}

// The counts that a stopping node could not send are counted as dropped.
func TestUnsentCountsAtTheEndAreCounted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*testPop)
	}{
		{"the shard is dead", func(p *testPop) { p.shards[0].kill() }},
		{"the shard is out", func(p *testPop) { _ = p.limiters[0].SetOut("s0:11211") }},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, 1, 1, false, manyPerMinute)
			tt.spoil(p)
			for client := range uint32(10) {
				ask(p.limiters[0], client)
			}
			time.Sleep(time.Second)
			p.stop()
			if dropped := value(t, p.registries[0], "edge_increments_dropped_total", ""); dropped != 10 {
				t.Errorf("%s: %v requests are counted as dropped, want 10", tt.name, dropped)
			}
		})
	}
}

// With a rule that fails closed, no request probes the shard. The node still notices that it is back, even if
// it left and joined again while it was down.
func TestAShardIsFoundWithoutRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, false, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1m}], on_failure: closed}]")
		defer p.stop()
		l, shards := p.limiters[0], p.clients(0)
		verdict := func() limit.Verdict {
			req := request(1)
			return l.Decide(&req, time.Now()).Verdict
		}
		set := func(shards []async.Shard) {
			t.Helper()
			if err := l.SetShards(shards); err != nil {
				t.Fatal(err)
			}
		}
		set(shards)
		p.shards[0].kill()
		for range 10 {
			verdict()
			time.Sleep(50 * time.Millisecond)
		}
		if v := verdict(); v != limit.Unavailable {
			t.Errorf("with a dead shard: %v", v)
		}
		p.shards[0].start(&p.running)
		time.Sleep(500 * time.Millisecond)
		if v := verdict(); v != limit.Passed {
			t.Errorf("half a second after its return: %v", v)
		}

		p.shards[0].kill()
		for range 10 {
			verdict()
			time.Sleep(50 * time.Millisecond)
		}
		set(nil)
		time.Sleep(time.Minute)
		p.shards[0].start(&p.running)
		set(shards)
		time.Sleep(500 * time.Millisecond)
		if v := verdict(); v != limit.Passed {
			t.Errorf("half a second after it joined again: %v", v)
		}
	})
}

// Shards can also change before Run and after it; nothing is counted then.
func TestShardsChangeAroundRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 2, false, manyPerMinute)
		p.stop()
		for _, shards := range [][]int{{1}, {}, {0, 1}, {0}} {
			if err := p.limiters[0].SetShards(p.clients(shards...)); err != nil {
				t.Error(err)
			}
		}
		l, _, _ := newLimiter(t, oneRule)
		for _, shards := range [][]int{{1}, {0, 1}, {}} {
			if err := l.SetShards(p.clients(shards...), "s0:11211"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestShardsGivenTwice(t *testing.T) {
	l, _, _ := newLimiter(t, oneRule)
	a, b := memcached.New("s:1", memcached.Options{}), memcached.New("s:1", memcached.Options{})
	for _, shards := range [][]async.Shard{{a, a}, {a, b}} {
		if err := l.SetShards(shards); err == nil {
			t.Error("SetShards with the same address twice returns no error")
		}
	}
	if err := l.SetShards([]async.Shard{a}); err != nil {
		t.Error(err)
	}
	if err := l.SetShards([]async.Shard{b}); err != nil {
		t.Errorf("another client of the same shard: %v", err)
	}
}
