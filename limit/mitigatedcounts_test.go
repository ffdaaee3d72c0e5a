package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// With count_while_mitigated, a client that keeps sending stays mitigated on all nodes, and one that slows down
// does not. Without it, the client uses up its threshold again and again.
func TestCountWhileMitigated(t *testing.T) {
	for _, test := range []struct {
		name, rule string
		verdict    limit.Verdict
		again      bool // some requests pass after the first refusal
	}{
		{"not set", "", limit.Blocked, true},
		{"set", ", count_while_mitigated: true", limit.Blocked, false},
		{"set, with a timeout", ", mitigation_timeout: 5s, count_while_mitigated: true", limit.Blocked, false},
		{"set, and only logged", ", action: log, count_while_mitigated: true", limit.Logged, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := startPop(t, 2, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 10, period: 10s}]"+test.rule+"}]")
				defer p.stop()
				send := func(every time.Duration, n int) (acted int, again bool) {
					for i := range n {
						req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}
						switch d := p.limiters[i%2].Decide(&req, time.Now()); {
						case d.Verdict == test.verdict:
							acted++
						case acted > 0:
							again = true
						}
						time.Sleep(every)
					}
					return acted, again
				}
				if acted, again := send(200*time.Millisecond, 300); acted == 0 || again != test.again {
					t.Errorf("of 300 requests in a minute, %d are %v; others pass later: %t, want %t", acted, test.verdict, again, test.again)
				}
				time.Sleep(20 * time.Second)
				if acted, _ := send(2*time.Second, 15); acted > 0 {
					t.Errorf("%d requests of a client that has slowed down are %v", acted, test.verdict)
				}
			})
		})
	}
}

// Requests that another rule refuses do not count for a rule whose key is not mitigated.
func TestCountWhileMitigatedByOtherRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `rules:
- {id: few, characteristics: [ip], limits: [{threshold: 5, period: 10s}]}
- {id: all, characteristics: [host], limits: [{threshold: 10, period: 10s}], count_while_mitigated: true}
`)
		defer p.stop()
		for range 100 {
			p.ask(rule.Request{Host: "example.com"}, 200)
		}
		req := rule.Request{Addr: netip.MustParseAddr("192.0.2.2"), Host: "example.com"}
		if d := p.limiters[0].Decide(&req, time.Now()); d.Verdict != limit.Passed {
			t.Errorf("a request of another client is %v, want passed: 6 of the first one's have passed", d.Verdict)
		}
	})
}

// With count_refused, a client that keeps sending while another rule refuses it is banned. The same holds if Envoy asks
// about it with one descriptor per rule. A request that the rule refuses for one value does not count for its other
// values.
func TestCountRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `
rules:
- {id: throttle, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: ban, characteristics: [header:x-api-key], limits: [{threshold: 20, period: 10m}], mitigation_timeout: 1d, count_refused: true}
`)
		defer p.stop()
		l := p.limiters[0]
		for i := range 30 {
			req := headers("a")
			req.Addr = netip.MustParseAddr("192.0.2.1")
			asks := []limit.Ask{{Rule: l.Rules().Rule("ban"), Request: &req, Times: 1}, {Rule: l.Rules().Rule("throttle"), Request: &req, Times: 1}}
			d := l.DecideBy(asks, time.Now())
			if banned, throttled := d[0].Verdict.Refused(), d[1].Verdict.Refused(); banned != (i > 20) || throttled != (i > 5) {
				t.Fatalf("request %d: banned = %t, throttled = %t", i+1, banned, throttled)
			}
			time.Sleep(20 * time.Millisecond)
		}
		for range 30 {
			if d := p.ask(headers("b", "a"), 200); d.Rule.ID != "ban" {
				t.Fatalf("a request with a banned value is refused by %s", d.Rule.ID)
			}
		}
		time.Sleep(time.Hour)
		if d := p.ask(headers("b"), 200); d.Verdict != limit.Passed {
			t.Errorf("a request with the other value is %v", d.Verdict)
		}
	})
}

// A rule that sheds counts what it refuses, also if it is asked by name: otherwise too many requests would pass.
// Requests that a narrower rule refuses do not count for a wider one, in whatever order the rules are asked.
func TestRefusalsOfAskedRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `
rules:
- {id: shed, characteristics: [host], limits: [{threshold: 5, period: 1h}], action: shed}
- {id: all, characteristics: [host], limits: [{threshold: 5, period: 1h}]}
- {id: client, characteristics: [ip], limits: [{threshold: 5, period: 1h}]}
- {id: net, characteristics: ["network:24/48"], limits: [{threshold: 100, period: 1h}], count_refused: true}
`)
		defer p.stop()
		l, refused := p.limiters[0], 0
		for i := range uint32(40) {
			req, one := request(i), request(100)
			if l.DecideBy([]limit.Ask{{Rule: l.Rules().Rule("shed"), Request: &req, Times: 1}}, time.Now())[0].Verdict == limit.Shed {
				refused++
			}
			var asks []limit.Ask
			for _, id := range []string{"all", "client", "net"} {
				asks = append(asks, limit.Ask{Rule: l.Rules().Rule(id), Request: &one, Times: 1})
			}
			l.DecideBy(asks, time.Now())
			time.Sleep(time.Second)
		}
		if n := value(t, p.registries[0], "edge_requests_counted_total", "shed"); refused < 20 || n != 40 {
			t.Errorf("%v of 40 requests are counted, of which %d were shed", n, refused)
		}
		if n := value(t, p.registries[0], "edge_requests_counted_total", "net"); n != 6 {
			t.Errorf("%v requests are counted for the network, want 6: its client exceeds a limit with them", n)
		}
	})
}
