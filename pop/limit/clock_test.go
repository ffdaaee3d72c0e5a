package limit_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/limit"
)

// A node whose clock is ahead has windows and deadlines of its own, and all of them by the
// same clock.
func TestANodeGoesByItsOwnClock(t *testing.T) {
	const ahead = 45 * time.Second
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		table, err := mitigation.New(mitigation.Options{})
		if err != nil {
			t.Fatal(err)
		}
		clock := func() time.Time { return time.Now().Add(ahead) }
		var record mitigation.Record
		l, err := limit.New(limit.Options{
			Rules:   parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 2m}]"),
			Table:   table,
			Now:     clock,
			Publish: func(r mitigation.Record) { record = r },
			Logger:  slog.New(slog.DiscardHandler),
		})
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
			t.Errorf("counted %v into a window, want the 15 s of the node's own", elapsed)
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
