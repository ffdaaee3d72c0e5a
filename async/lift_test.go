package async_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// Requests that wait or are in flight during a lift count as made before it: they start no mitigation, and are counted as
// dropped, on the node that lifts and on its peers.
func TestLiftWithCountsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name string
		lift func(*single)
	}{
		{"made here", func(a *single) {
			if _, err := a.Lift(a.key(1), time.Now()); err != nil {
				t.Error(err)
			}
		}},
		{"made by another node", func(a *single) {
			now := time.Now()
			a.Learn(mitigation.Record{
				Key: a.key(1), Lifted: true, Node: 7, Start: now.UnixMicro(),
				Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
			}, "peer", now)
		}},
	} {
		bubble.Test(t, func(t *testing.T) {
			time.Sleep(time.Second)
			a, g := startGated(t, fmt.Sprintf(perMinute, 10, "1h"), 10*time.Second)
			defer a.close()
			ask := func(n int, want limit.Verdict) {
				t.Helper()
				for range n {
					if d := a.decide(1); d.Verdict != want {
						t.Errorf("%s: a request is %v, want %v", tt.name, d.Verdict, want)
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			ask(5, limit.Passed)
			g.close()
			ask(2, limit.Passed) // in flight
			ask(3, limit.Passed) // these wait
			now := time.Now()
			a.Learn(mitigation.Record{
				Key: a.key(1), Node: 6, Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour),
				Why: mitigation.Why{Limit: counter.Limit{Threshold: 10, Period: 60e6, Layout: counter.Plain}, Cur: 11},
			}, "peer", now)
			ask(1, limit.Blocked)
			tt.lift(a)
			g.open()
			time.Sleep(10 * time.Millisecond)
			ask(10, limit.Passed)
			if n := value(t, a.reg, "edge_increments_dropped_total", "lifted"); n != 3 {
				t.Errorf("%s: %v requests are counted as dropped by the lift, want 3", tt.name, n)
			}
			ask(1, limit.Passed)
			ask(1, limit.Blocked) // later requests count
		})
	}
}

// A request decided before a lift but answered after it counts as made before it.
func TestLiftBeforeTheAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 1h, count: {statuses: [401]}}]", nil)
		defer a.close()
		var decisions []limit.Decision
		for range 22 {
			decisions = append(decisions, a.decide(1))
		}
		for i := range decisions {
			if i == 11 {
				time.Sleep(10 * time.Millisecond)
				if _, err := a.Lift(a.key(1), time.Now()); err != nil {
					t.Error(err)
				}
			}
			a.Answered(&decisions[i], 401, nil, time.Now())
		}
		time.Sleep(10 * time.Millisecond)
		if d := a.decide(1); d.Verdict != limit.Passed {
			t.Errorf("a client is %v because of requests from before the lift", d.Verdict)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", "lifted"); n != 11 {
			t.Errorf("%v requests are counted as dropped by the lift, want 11", n)
		}
	})
}

// Requests that were decided before a lift and are answered after it neither start nor extend a mitigation, even if
// another one has begun and ended in between.
func TestLiftBetweenDecisionsAndAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], count: {statuses: [401]}}]", nil)
		defer a.close()
		decided := func(n int) (all []limit.Decision) {
			for range n {
				all = append(all, a.decide(1))
			}
			return all
		}
		answer := func(all []limit.Decision) {
			for i := range all {
				a.Answered(&all[i], 401, nil, time.Now())
			}
			time.Sleep(10 * time.Millisecond)
		}
		old := decided(40) // whose answers come late
		answer(decided(11))
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		answer(decided(11))
		ends := a.table.Get(a.key(1), time.Now(), func(*mitigation.Record) bool { return true })
		if ends == nil {
			t.Fatal("11 requests after the lift cause no mitigation")
		}
		answer(old[:20])
		if now := a.table.Get(a.key(1), time.Now(), func(*mitigation.Record) bool { return true }); !now.Deadline.Equal(ends.Deadline) {
			t.Errorf("requests from before the lift extend a mitigation by %v", now.Deadline.Sub(ends.Deadline))
		}
		time.Sleep(time.Minute)
		answer(old[20:])
		if d := a.decide(1); d.Verdict != limit.Passed {
			t.Errorf("a client is %v because of requests from before the lift", d.Verdict)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", "lifted"); n != 40 {
			t.Errorf("%v requests are counted as dropped by the lift, want 40", n)
		}
	})
}

// A lift still applies after a later mitigation has ended: records from before the lift, such as
// those of a shard that was unreachable, have no effect.
func TestLiftOutlastsNextMitigation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 30s}]", nil)
		defer a.close()
		ask := func(n int) {
			for range n {
				a.decide(1)
			}
			time.Sleep(10 * time.Millisecond)
		}
		ask(11)
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		ask(11)
		if d := a.decide(1); d.Verdict != limit.Blocked {
			t.Fatalf("a client that continues after the lift is %v, want %v", d.Verdict, limit.Blocked)
		}
		for _, later := range []time.Duration{time.Minute, 24 * time.Hour, 12 * 24 * time.Hour} {
			time.Sleep(later)
			now := time.Now()
			a.Learn(mitigation.Record{
				Key: a.key(1), Node: 6, Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour),
				Why: mitigation.Why{Limit: counter.Limit{Threshold: 10, Period: 10e6, Layout: counter.Plain}, Cur: 11},
			}, "peer", now)
			if d := a.decide(1); d.Verdict != limit.Passed {
				t.Errorf("%v later, a record from before the lift makes the client %v", later, d.Verdict)
			}
		}
	})
}

// key returns the key of a client under the first rule.
func (p *testPop) key(client uint32) counter.Key {
	req := request(client)
	req.Canonicalize(rule.ClientPrefix{})
	l := p.limiters[0]
	what, _ := l.Rules().Rules()[0].AppendKey(nil, &req)
	return p.secret.Tag(what)
}

// A node that learns of a lift from a peer stores it, because that peer may not reach the shard.
func TestLiftOfAPeerIsStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 1, false, fmt.Sprintf(perMinute, 10, "1h"))
		defer p.stop()
		decide := func(l *limit.Limiter) limit.Verdict {
			req := request(1)
			defer time.Sleep(10 * time.Millisecond)
			return l.Decide(&req, time.Now()).Verdict
		}
		for range 11 {
			decide(p.limiters[0])
		}
		now := time.Now()
		p.limiters[0].Learn(mitigation.Record{
			Key: p.key(1), Lifted: true, Node: 7, Start: now.UnixMicro(),
			Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
		}, "peer", now)
		time.Sleep(5 * time.Minute) // the counts have left the period
		for range 2 {               // the first request makes the node read the shard
			if v := decide(p.limiters[1]); v != limit.Passed {
				t.Errorf("a client is %v at a node that knows only what the shard has, want %v", v, limit.Passed)
			}
		}
	})
}

// A lift whose key is evicted before the lift is stored is stored later.
func TestLiftOfAnEvictedKeyIsStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 3, 1, false, fmt.Sprintf(perMinute, 10, "1h"))
		defer p.stop()
		decide := func(l *limit.Limiter, client uint32) limit.Verdict {
			req := request(client)
			return l.Decide(&req, time.Now()).Verdict
		}
		for range 11 {
			decide(p.limiters[0], 1)
		}
		time.Sleep(10 * time.Millisecond)
		p.shards[0].gate.close()
		for client := range uint32(2) { // as many batches as may be in flight
			decide(p.limiters[1], 2+client)
			time.Sleep(5 * time.Millisecond)
		}
		now := time.Now()
		p.limiters[1].Learn(mitigation.Record{
			Key: p.key(1), Lifted: true, Node: 7, Start: now.UnixMicro(),
			Lifetime: mitigation.MaxLifetime, Deadline: now.Add(mitigation.MaxLifetime),
		}, "peer", now)
		for client := range uint32(5000) {
			if decide(p.limiters[1], 100+client); client%500 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		p.shards[0].gate.open()
		time.Sleep(5 * time.Minute) // the counts have left the period
		for range 2 {               // the first request makes the node read the shard
			if v := decide(p.limiters[2], 1); v != limit.Passed {
				t.Errorf("a client is %v at a node that knows only what the shard has, want %v", v, limit.Passed)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A lift is stored again at the next owner of its key, which may still have the mitigation: a node
// that starts then learns of the lift there.
func TestLiftIsStoredAtNextOwner(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 2, false, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 1h}]")
		defer p.stop()
		const clients = 20
		decide := func(l *limit.Limiter, client uint32) limit.Verdict {
			req := request(client)
			return l.Decide(&req, time.Now()).Verdict
		}
		p.setOut(t, 0)
		for client := range uint32(clients) {
			for range 11 {
				decide(p.limiters[0], client)
			}
		}
		time.Sleep(10 * time.Millisecond) // the records are at the second shard
		p.setOut(t)
		for client := range uint32(clients) {
			if _, err := p.limiters[0].Lift(p.key(client), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // both have the lifts, and the counts have left the period
		p.shards[0].kill()
		p.setOut(t, 0)
		time.Sleep(2 * time.Second)
		for client := range uint32(clients) {
			decide(p.limiters[1], client)
		}
		time.Sleep(10 * time.Millisecond)
		for client := range uint32(clients) {
			if v := decide(p.limiters[1], client); v != limit.Passed {
				t.Errorf("client %d is %v at a node that knows only what the next owner has, want %v", client, v, limit.Passed)
			}
		}
	})
}

// Until the loop has processed a lift, the old counts do not apply: two waiting requests start no
// mitigation, and the client gets no quota.
func TestCountsKnownBeforeALift(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 5, "1m"), nil)
		defer a.close()
		for range 6 {
			a.decide(1)
		}
		time.Sleep(10 * time.Millisecond)
		if !a.decide(1).Verdict.Refused() {
			t.Fatal("the client is not mitigated")
		}
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			d := a.decide(1)
			if d.Verdict.Refused() {
				t.Errorf("request %d after the lift is refused", i+1)
			}
			if q := a.Quotas(nil, &d, time.Now()); q[0].Known {
				t.Errorf("request %d after the lift: quotas are %+v", i+1, q[0])
			}
		}
	})
}

// Requests from before a lift do not refuse later ones, either, while the lift is being stored.
func TestCountsKnownWhileALiftIsStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, g := startGated(t, fmt.Sprintf(perMinute, 5, "1h"), 10*time.Second)
		defer a.close()
		for range 6 {
			a.decide(1)
		}
		time.Sleep(10 * time.Millisecond)
		g.close()
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // it is in flight
		for i := range 2 {
			if d := a.decide(1); d.Verdict != limit.Passed {
				t.Errorf("request %d after the lift is %v, want passed", i+1, d.Verdict)
			}
		}
		g.open()
	})
}
