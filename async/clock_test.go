package async_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A node whose clock is ahead uses its own clock for all windows and deadlines.
func TestNodeUsesItsOwnClock(t *testing.T) {
	const ahead = 45 * time.Second
	bubble.Test(t, func(t *testing.T) {
		table := mitigation.New(mitigation.Options{})
		clock := func() time.Time { return time.Now().Add(ahead) }
		var record mitigation.Record
		l, err := limit.New(limit.Options{
			Rules:   parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 2m}]"),
			Table:   table,
			Now:     clock,
			Publish: func(r mitigation.Record) { record = r },
			Logger:  slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		ask := func() limit.Verdict {
			req := request(1)
			d := l.Decide(&req, clock())
			time.Sleep(3 * time.Millisecond)
			synctest.Wait() // it is counted
			return d.Verdict
		}
		time.Sleep(30 * time.Second) // a bubble begins at a whole minute
		for range 11 {
			if v := ask(); v != limit.Passed {
				t.Fatalf("%v within the threshold", v)
			}
		}
		if v := ask(); v != limit.Blocked {
			t.Fatalf("%v above the threshold, want blocked", v)
		}
		if elapsed := time.Duration(record.Why.Elapsed) * time.Microsecond; elapsed < 15*time.Second || elapsed > 16*time.Second {
			t.Errorf("counted %v into a window, want 15 s, by the node's own clock", elapsed)
		}
		if start := time.UnixMicro(record.Start); clock().Sub(start) > time.Second || record.Deadline.Sub(start) != 2*time.Minute {
			t.Errorf("the mitigation is from %v to %v, and the node's clock says %v", start, record.Deadline, clock())
		}
		time.Sleep(2 * time.Minute)
		if v := ask(); v != limit.Passed {
			t.Errorf("%v after the mitigation, want passed", v)
		}
		stop()
		running.Wait()
	})
}

// A window lasts longer if the clock is set back into it. A client that sends correspondingly less
// stays innocent: see docs/clocks.md.
func TestClockSetBack(t *testing.T) {
	for _, tt := range []struct {
		name     string
		at, back time.Duration
		every    time.Duration // pause between requests; the limit is 60 per minute
		refuses  bool
	}{
		{"within a window, 42 per minute", 50 * time.Second, 20 * time.Second, 1400 * time.Millisecond, false},
		{"within a window, 58 per minute", 50 * time.Second, 20 * time.Second, 1030 * time.Millisecond, true},
		{"into the window before, 42 per minute", 10 * time.Second, 20 * time.Second, 1400 * time.Millisecond, false},
		{"into the window before, 58 per minute", 10 * time.Second, 20 * time.Second, 1030 * time.Millisecond, true},
		{"by more than a window, 23 per minute", 30 * time.Second, 90 * time.Second, 2600 * time.Millisecond, false},
		{"by more than a window, 58 per minute", 30 * time.Second, 90 * time.Second, 1030 * time.Millisecond, true},
		{"by an hour, 28 per minute", 30 * time.Second, time.Hour, 2140 * time.Millisecond, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			var back time.Duration
			var mu sync.Mutex
			clock := func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(-back)
			}
			a := startSingle(t, fmt.Sprintf(perMinute, 60, "0s"), func(o *limit.Options, _ *mitigation.Options) { o.Now = clock })
			defer a.close()
			refused := 0
			ask := func(until time.Time) {
				for ; time.Now().Before(until); time.Sleep(tt.every) {
					req := request(1)
					if d := a.Decide(&req, clock()); d.Verdict.Refused() {
						refused++
					}
				}
			}
			edge := time.Now().Truncate(time.Minute).Add(3 * time.Minute)
			if ask(edge.Add(tt.at)); refused > 0 {
				t.Fatalf("%s: %d requests are refused before", tt.name, refused)
			}
			mu.Lock()
			back = tt.back
			mu.Unlock()
			if ask(edge.Add(10 * time.Minute)); refused > 0 != tt.refuses {
				t.Errorf("%s: %d requests are refused after the clock was set back by %v", tt.name, refused, tt.back)
			}
		})
	}
}

// A mitigation that starts after one made by a fast clock is greater than that one, and is not mistaken for a
// lift, which would reset the counts.
func TestMitigationAfterOneFromClockAhead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 10, "0s"), nil)
		defer a.close()
		key := a.key(2)
		a.decide(2)
		now := time.Now()
		peers := mitigation.Record{
			Key: key, Node: 9, Start: now.Add(time.Hour).UnixMicro(), Lifetime: time.Second, Deadline: now.Add(time.Second),
			Why: mitigation.Why{Limit: counter.Limit{Threshold: 10, Period: 60e6, Layout: counter.Plain}, Cur: 11},
		}
		a.Learn(peers, "peer", now)
		time.Sleep(2 * time.Second)
		passed := 0
		for range 30 {
			if d := a.decide(2); !d.Verdict.Refused() {
				passed++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if passed != 10 {
			t.Errorf("%d more requests of a client that has sent one passed, want 10", passed)
		}
		if own, ok := a.table.Held(key, time.Now()); !ok || own.Node != 2 || own.Generation != 0 || !own.Wins(peers) {
			t.Errorf("the node holds %+v, want its own mitigation, of generation 0, instead of the peer's", own)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", "lifted"); n != 0 {
			t.Errorf("%v requests are dropped as lifted, want 0", n)
		}
	})
}
