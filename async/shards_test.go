package async_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
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

// A counter that is lost, or whose key gets another owner, continues from the count that the next node to use it knows.
func TestCounterContinues(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(*testing.T, *testPop)
	}{
		{"a shard is out", func(t *testing.T, p *testPop) { p.setOut(t, 1) }},
		{"and back", func(t *testing.T, p *testPop) { p.setOut(t, 1); p.setOut(t) }},
		{"two are out", func(t *testing.T, p *testPop) { p.setOut(t, 0, 2) }},
		{"two leave the list and one is out", func(t *testing.T, p *testPop) {
			for _, l := range p.limiters {
				if err := l.SetShards(p.clients(0, 1), "s1:11211", "none:11211"); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"all restart", func(_ *testing.T, p *testPop) {
			for _, s := range p.shards {
				s.kill()
				s.start(&p.running)
			}
		}},
		{"the rules are loaded again", func(t *testing.T, p *testPop) {
			for _, l := range p.limiters {
				l.SetRules(parse(t, strings.Replace(manyPerMinute, "1000", "1000 ", 1)))
			}
		}},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, 2, 4, true, manyPerMinute)
			defer p.stop()
			const clients = 40
			for range 9 {
				for client := range uint32(clients) {
					ask(p.limiters[0], client)
				}
			}
			time.Sleep(10 * time.Millisecond)
			tt.breaks(t, p)
			for client := range uint32(clients) {
				ask(p.limiters[0], client)
			}
			time.Sleep(200 * time.Millisecond)
			wantKnown(t, tt.name, p.limiters[1], clients, 10)
			wantKnown(t, tt.name, p.limiters[0], clients, 12)
		})
	}
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
		wantKnown(t, "no shard is in", p.limiters[0], clients, 3)
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
	a, b := memcached.New("s:1", wire.Options{}), memcached.New("s:1", wire.Options{})
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
