package pop_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
)

// The number of requests that pass before a client is refused has a bound, in fake time. The bounds are the
// current results: lower them when counting becomes faster.
func TestDetection(t *testing.T) {
	const rules = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 1m}], mitigation_timeout: 10m}]"
	for _, test := range []struct {
		name      string
		slow      time.Duration // delay of the shards' reads
		strangers int           // new clients per request of the attacker
		most      int           // requests that pass
	}{
		{"alone", 0, 0, 120},
		{"with shards that take 20 ms", 20 * time.Millisecond, 0, 150},
		{"during a flood of new keys", 0, 5, 150},
		{"with both", 20 * time.Millisecond, 2, 150},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &scenario{t: t, shards: map[string]*fakeShard{}, fronts: map[*pop.Node]*shard.Pipe{}, network: newNetwork(t)}
				defer time.Sleep(2 * test.slow) // until shards notice that their connections are closed
				defer s.stop()
				if _, err := s.pop(&datadriven.TestData{Cmd: "pop", Input: rules}); err != nil {
					t.Fatal(err)
				}
				for _, each := range s.shards {
					each.mu.Lock()
					each.slow = test.slow
					each.mu.Unlock()
				}
				s.origin.set(http.StatusOK, 0)
				send := func(n int, ip string) string {
					r := httptest.NewRequest(http.MethodGet, "http://example.com/", nil)
					r.RemoteAddr = ip + ":1234"
					return s.serve(s.nodes[n%len(s.nodes)], r)
				}
				passed, last := 0, 0
				const before = 500 // milliseconds in which new clients fill the queues
				for i := range before + 2000 {
					time.Sleep(time.Millisecond)
					if i >= before && send(i, "192.0.2.1") == "200" {
						passed, last = passed+1, i-before
					}
					for n := range test.strangers {
						stranger := i*test.strangers + n
						if status := send(i+n, fmt.Sprintf("10.%d.%d.%d", stranger>>16, stranger>>8&255, stranger&255)); status != "200" {
							t.Fatalf("the only request of a client got %s", status)
						}
					}
				}
				t.Logf("%d requests passed, the last one after %d ms", passed, last)
				if passed > test.most {
					t.Errorf("%d requests of a client passed, want at most %d; the limit is 100 in a minute", passed, test.most)
				}
			})
		})
	}
}
