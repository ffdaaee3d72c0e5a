package limit_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// An abandoned request waits if any of its keys has room. If nobody waits for its answer, it counts under keys that are
// known to be near a threshold, but not under unknown keys, such as that of a client who closes a tab.
func TestAbandon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `
rules:
  - {id: client, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 10, period: 1h}]}
  - {id: path, characteristics: [path], count: {statuses: [401]}, limits: [{threshold: 1000, period: 1h}]}
`)
		defer p.stop()
		l := p.limiters[0]
		decide := func(client uint32) limit.Decision { return l.Decide(ptr(request(client)), time.Now()) }
		counted := func(what string, want float64) {
			t.Helper()
			time.Sleep(time.Second)
			if got := value(t, p.registries[0], "edge_requests_counted_total", "client"); got != want {
				t.Errorf("%s: %v requests are counted for clients, want %v", what, got, want)
			}
		}
		d := decide(1)
		if !l.Abandon(&d, time.Now()) {
			t.Fatal("the first request does not wait")
		}
		l.Forsake(&d, time.Now())
		counted("one of an unknown client", 0)
		for range 6 {
			d = decide(2)
			l.Answered(&d, 401, nil, time.Now())
		}
		counted("six failed", 6)
		var waiting []limit.Decision
		for i := range limit.MaxAbandoned {
			waiting = append(waiting, decide(2))
			if !l.Abandon(&waiting[i], time.Now()) {
				t.Fatalf("request %d does not wait", i+1)
			}
		}
		waiting = append(waiting, decide(3))
		if !l.Abandon(&waiting[len(waiting)-1], time.Now()) {
			t.Error("a request without room under its path does not wait, although its client has room")
		}
		if d = decide(2); l.Abandon(&d, time.Now()) {
			t.Error("a request without room under any key waits")
		}
		counted("one without room, near the threshold", 7)
		for i := range waiting {
			l.Resolve(&waiting[i], 200, nil, time.Now())
		}
		if n := l.Abandoned(); n > 0 {
			t.Errorf("the limiter still remembers %d keys", n)
		}
	})
}

func ptr(r rule.Request) *rule.Request { return &r }
