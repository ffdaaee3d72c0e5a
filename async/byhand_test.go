package async_test

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// All nodes act on a mitigation that an operator starts, although nothing was counted. It replaces one that
// ends earlier, and is lifted like any other.
func TestByHand(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		p := startPop(t, 2, 1, true, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1m}]}]")
		defer p.stop()
		decide := func(want limit.Verdict) {
			t.Helper()
			for i, l := range p.limiters {
				req := request(1)
				if d := l.Decide(&req, time.Now()); d.Verdict != want {
					t.Errorf("limiter %d: %v, want %v", i, d.Verdict, want)
				}
			}
		}
		add := func(lifetime time.Duration) (mitigation.Record, error) {
			req, l := request(1), p.limiters[0]
			record, err := l.Add(p.key(1), l.Rules().Rule("all"), req.Addr, lifetime, time.Now())
			time.Sleep(10 * time.Millisecond) // until it is published and stored
			return record, err
		}
		now := time.Now()
		p.limiters[0].Learn(mitigation.Record{
			Key: p.key(1), Node: 9, Start: now.UnixMicro(), Lifetime: 2 * time.Hour, Deadline: now.Add(2 * time.Hour),
			Why: mitigation.Why{Limit: counter.Limit{Threshold: 5, Period: 60e6, Layout: counter.Plain}, Cur: 6},
		}, "peer", now)
		decide(limit.Passed) // the threshold is higher now
		if record, err := add(time.Hour); err != nil || !record.ByHand || record.Client.IsValid() {
			t.Errorf("%+v, %v; want it by hand, and without a client, which is not logged", record, err)
		}
		decide(limit.Blocked)
		if _, err := add(time.Minute); err == nil || !strings.Contains(err.Error(), "is already mitigated for 1h0m0s") {
			t.Errorf("adding a shorter one: %v", err)
		}
		if _, err := add(2 * time.Hour); err != nil {
			t.Error(err)
		}
		time.Sleep(90 * time.Minute)
		decide(limit.Blocked)
		if lift, err := p.limiters[1].Lift(p.key(1), time.Now()); err != nil || lift.Rule != p.limiters[1].Rules().Rule("all").Fingerprint() {
			t.Errorf("the lift is %+v, %v; want it to name the rule", lift, err)
		}
		time.Sleep(10 * time.Millisecond)
		decide(limit.Passed)
		if _, err := add(time.Minute); err != nil {
			t.Errorf("after a lift: %v", err)
		}
		decide(limit.Blocked)
		time.Sleep(time.Minute)
		decide(limit.Passed)
	})
}

// A node without peers learns of such a mitigation from the shard, with the key's next count.
func TestByHandFromTheShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		p := startPop(t, 2, 1, false, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1m}]}]")
		defer p.stop()
		req, l := request(1), p.limiters[0]
		if _, err := l.Add(p.key(1), l.Rules().Rule("all"), req.Addr, time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		for i, want := range []limit.Verdict{limit.Passed, limit.Blocked} {
			req := request(1)
			if d := p.limiters[1].Decide(&req, time.Now()); d.Verdict != want {
				t.Errorf("request %d: %v, want %v", i+1, d.Verdict, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}
