package async_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A shard that does not answer when the previous window is read is asked again. Until it answers,
// that window is unknown, not empty.
func TestTimedOutReadIsRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, g := startGated(t, fmt.Sprintf(perMinute, 10, "1h"), 50*time.Millisecond)
		defer a.close()
		minute := counter.Limit{Threshold: 10, Period: 60e6, Layout: counter.Plain}
		begin := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(begin.Add(30 * time.Second)))
		window, _ := counter.Window(time.Now(), minute.Period)
		s := memcached.New("s:11211", wire.Options{Dial: a.pipe.Dial})
		defer s.Close()
		if _, err := increment(s, a.secret.CounterItem(a.key(1), minute, window), 10); err != nil { // sent by another node
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(time.Minute + 50*time.Millisecond))) // all nodes are done with it
		a.decide(2)                                                          // opens a connection
		time.Sleep(10 * time.Millisecond)
		g.close()
		for range 3 {
			a.decide(1)
		}
		time.Sleep(200 * time.Millisecond)
		g.open()
		time.Sleep(2 * time.Second)
		if d := a.decide(1); d.Verdict != limit.Blocked {
			t.Errorf("a client with 10 requests in the previous window and 3 in this one, of 10, is %v", d.Verdict)
		}
	})
}

// The previous window is read again if it was read before other nodes were done with it, however late the reply comes.
func TestSlowReadIsNotFinal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, g := startGated(t, fmt.Sprintf(perMinute, 10, "1h"), 50*time.Millisecond)
		defer a.close()
		minute := counter.Limit{Threshold: 10, Period: 60e6, Layout: counter.Plain}
		window, elapsed := counter.Window(time.Now(), minute.Period)
		begin := time.Now().Add(time.Minute - time.Duration(elapsed)*time.Microsecond)
		time.Sleep(time.Until(begin.Add(-time.Second)))
		a.decide(2) // opens a connection
		s := memcached.New("s:11211", wire.Options{Dial: a.pipe.Dial})
		defer s.Close()
		time.Sleep(time.Until(begin.Add(time.Millisecond)))
		g.close()
		a.decide(1) // is flushed at 3 ms; others are done at 4 ms
		time.Sleep(time.Until(begin.Add(3500 * time.Microsecond)))
		if _, err := increment(s, a.secret.CounterItem(a.key(1), minute, window), 10); err != nil { // sent late by another node
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(10 * time.Millisecond)))
		g.open()
		time.Sleep(10 * time.Millisecond)
		if d := a.decide(1); d.Verdict != limit.Blocked {
			t.Errorf("a client with 10 requests at the end of the previous window and one in this one, of 10, is %v", d.Verdict)
		}
	})
}

// A shard that does not answer when an evicted record is read is asked again.
func TestTimedOutReadOfRecordIsRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, g := startGated(t, fmt.Sprintf(perMinute, 5, "1h"), 50*time.Millisecond)
		defer a.close()
		evict := func() {
			now := time.Now()
			for i := range uint16(1 << 11) { // fills a part of the table
				other := a.key(1)
				binary.LittleEndian.PutUint16(other[14:], ^binary.LittleEndian.Uint16(other[14:])^i)
				a.Learn(mitigation.Record{Key: other, Start: now.UnixMicro(), Lifetime: time.Second, Deadline: now.Add(time.Second)}, "peer", now)
			}
		}
		ask := func(what string, want limit.Verdict) {
			t.Helper()
			if d := a.decide(1); d.Verdict != want {
				t.Errorf("a client that is blocked for an hour is %v %s, want %v", d.Verdict, what, want)
			}
			time.Sleep(time.Second)
		}
		for range 6 {
			a.decide(1)
		}
		time.Sleep(5 * time.Minute) // its counts have left the period
		evict()
		ask("while its record is not known", limit.Passed)
		ask("after its record was read", limit.Blocked)
		evict()
		g.close()
		ask("while its record is not known", limit.Passed)
		g.open()
		time.Sleep(time.Second)
		ask("after its shard has answered again", limit.Blocked)
	})
}

// A node that holds the record of a key stores it at the key's new owner, even if the former owner is dead by then.
func TestRecordFollowsItsKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 2, false, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 10m, count: {statuses: [401]}}]")
		defer p.stop()
		const clients = 20
		decide := func(l *limit.Limiter, client uint32) limit.Decision {
			req := request(client)
			return l.Decide(&req, time.Now())
		}
		last := make([]limit.Decision, clients) // has no answer yet
		for client := range last {
			for range 11 {
				d := decide(p.limiters[0], uint32(client))
				p.limiters[0].Answered(&d, 401, nil, time.Now())
				last[client] = d
			}
		}
		time.Sleep(10 * time.Millisecond)
		p.shards[0].kill()
		p.setOut(t, 0)
		time.Sleep(10 * time.Millisecond)
		for client := range last {
			if d := decide(p.limiters[0], uint32(client)); d.Verdict != limit.Blocked {
				t.Errorf("client %d is %v at the node that counted it, want %v", client, d.Verdict, limit.Blocked)
			}
			p.limiters[0].Answered(&last[client], 401, nil, time.Now())
		}
		time.Sleep(time.Minute) // the counts have left the period
		for client := range last {
			d := decide(p.limiters[1], uint32(client))
			p.limiters[1].Answered(&d, 401, nil, time.Now())
		}
		time.Sleep(10 * time.Millisecond)
		for client := range last {
			if d := decide(p.limiters[1], uint32(client)); d.Verdict != limit.Blocked {
				t.Errorf("client %d is %v at a node that knows only what the new owner has, want %v", client, d.Verdict, limit.Blocked)
			}
		}
	})
}

// A record that ends within a second leaves the shard when it ends. With a time to live of 0 it would stay
// forever.
func TestShortMitigationLeavesShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 800*time.Millisecond)))
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1s}], mitigation_timeout: 0s}]", nil)
		defer a.close()
		for range 11 {
			a.decide(1)
		}
		time.Sleep(10 * time.Millisecond)
		held, ok := a.table.Held(a.key(1), time.Now())
		if !ok || held.Lifetime >= time.Second {
			t.Fatalf("the node holds %+v, want a record that ends within a second", held)
		}
		record := a.secret.RecordItem(a.key(1)).String()
		if len(a.stored(t, record)) == 0 {
			t.Fatal("no record is stored")
		}
		time.Sleep(time.Minute)
		if got := a.stored(t, record); len(got) != 0 {
			t.Errorf("a minute after its end, %x is still stored", got)
		}
	})
}

// A shard that stopped answering is probed until it answers, even if no count waits for it and a
// rule that fails closed adds none.
func TestFailedShardIsProbed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, g := startGated(t, "rules: [{id: all, on_failure: closed, characteristics: [ip], limits: [{threshold: 100, period: 1h}]}]", 50*time.Millisecond)
		defer a.close()
		a.decide(1)
		time.Sleep(10 * time.Millisecond)
		g.close()
		for range 20 {
			a.decide(1)
			time.Sleep(100 * time.Millisecond)
		}
		if d := a.decide(1); d.Verdict != limit.Unavailable {
			t.Fatalf("while the shard does not answer, a request is %v, want %v", d.Verdict, limit.Unavailable)
		}
		time.Sleep(10 * time.Minute)
		g.open()
		time.Sleep(5 * time.Second)
		if d := a.decide(1); d.Verdict != limit.Passed {
			t.Errorf("after the shard answers again, a request is %v, want %v", d.Verdict, limit.Passed)
		}
		if n := value(t, a.reg, "edge_counting_alone", ""); n != 0 {
			t.Errorf("edge_counting_alone = %v after the shard answers again", n)
		}
	})
}
