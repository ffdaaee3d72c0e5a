package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// Reports of requests that the access lists decide do not count. Reports are no decisions, so no metric of decisions
// contains them.
func TestReports(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `
deny: [192.0.2.9]
rules: [{id: login, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 10, period: 1h}]}]
`)
		defer p.stop()
		l := p.limiters[0]
		of := func(addr string) limit.Ask {
			req := request(1)
			req.Addr = netip.MustParseAddr(addr)
			return limit.Ask{Rule: l.Rules().Rules()[0], Request: &req, Times: 1, Listed: true, Report: true}
		}
		for _, addr := range []string{"192.0.2.1", "192.0.2.9"} {
			l.Report(of(addr).Request, 401, nil, time.Now())
		}
		l.DecideBy([]limit.Ask{of("192.0.2.1"), of("192.0.2.9")}, time.Now())
		time.Sleep(time.Second)
		for metric, want := range map[string]float64{"edge_requests_counted_total": 2, "edge_requests_total": 0} {
			label := "login"
			if want == 0 {
				label = ""
			}
			if got := value(t, p.registries[0], metric, label); got != want {
				t.Errorf("%s is %v, want %v", metric, got, want)
			}
		}
	})
}

// A mitigation that only logs has no ID for the client. A rule that hides its quota hides it from refused clients, too.
func TestWhatClientsLearn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `
rules:
  - {id: log, characteristics: [ip], action: log, limits: [{threshold: 1, period: 1h}]}
  - {id: hide, characteristics: [ip], ratelimit_headers: false, limits: [{threshold: 4, period: 1h}]}
`)
		defer p.stop()
		l := p.limiters[0]
		var d limit.Decision
		for range 4 {
			req := request(1)
			d = l.Decide(&req, time.Now())
			time.Sleep(time.Second)
		}
		if d.Verdict != limit.Logged || d.Record == nil || l.ID(&d, request(1).Addr) != (limit.ID{}) {
			t.Errorf("%v has the ID %v, want none", d.Verdict, l.ID(&d, request(1).Addr))
		}
		for range 3 {
			req := request(1)
			d = l.Decide(&req, time.Now())
			time.Sleep(time.Second)
		}
		if q := l.Quotas(nil, &d, time.Now()); d.Verdict != limit.Blocked || len(q) > 0 || l.ID(&d, request(1).Addr) == (limit.ID{}) {
			t.Errorf("%v, quotas %+v; want none of a rule that hides them, and an ID", d.Verdict, q)
		}
	})
}

// An answer that was counted before this node learned of a peer's mitigation does not reach its client, unlike one
// before a mitigation by this node.
func TestPeersMitigationWithholdsAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: login, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 10, period: 1h}]}]")
		defer p.stop()
		l, now := p.limiters[0], time.Now()
		for _, node := range []mitigation.NodeID{1, 2} {
			req := request(uint32(node))
			d := l.Decide(&req, now)
			for _, key := range d.Counts {
				l.Answered(&d, 401, nil, now)
				l.Learn(mitigation.Record{
					Key: key, Start: now.UnixMicro(), Lifetime: time.Hour, Node: node, Deadline: now.Add(time.Hour), ByHand: true,
				}, "peer", now)
			}
			if got := l.Withholds(&d, req.Addr, now); got != (node == 2) {
				t.Errorf("the answer before a mitigation by node %d is withheld: %t", node, got)
			}
		}
	})
}

// A rule that only logs does not change the decision about a request that has passed.
func TestLoggedMitigationLeavesAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: watch, action: log, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 10, period: 1h}]}]")
		defer p.stop()
		l, now, req := p.limiters[0], time.Now(), request(1)
		d := l.Decide(&req, now)
		l.Answered(&d, 401, nil, now)
		for _, key := range d.Counts {
			l.Learn(mitigation.Record{
				Key: key, Start: now.UnixMicro(), Lifetime: time.Hour, Node: 2, Deadline: now.Add(time.Hour), ByHand: true,
			}, "peer", now)
		}
		if l.Withholds(&d, req.Addr, now) || d.Verdict != limit.Passed {
			t.Errorf("the request is %v, want %v", d.Verdict, limit.Passed)
		}
	})
}
