package limit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// Clients see the policy of each limit, and the remaining quota if the node knows it.
func TestQuotas(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 2, 1, `
rules:
  - {id: seen, characteristics: [ip], limits: [{threshold: 5, period: 10s}, {threshold: 100, period: 1m}]}
  - {id: unseen, characteristics: [ip], limits: [{threshold: 9, period: 10s}], action: log}
`)
		defer p.stop()
		seen := p.limiters[0].Rules().Rules()[0]
		ask := func(node int) []limit.Quota {
			req := request(1)
			d := p.limiters[node].Decide(&req, time.Now())
			return p.limiters[node].Quotas(nil, &d, time.Now())
		}
		check := func(what string, got []limit.Quota, want ...limit.Quota) {
			t.Helper()
			for i := range want {
				want[i].Rule, want[i].Limit = seen, seen.Limits[i]
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(rule.Rule{}, rule.Characteristic{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		check("nothing is known yet", ask(0), limit.Quota{}, limit.Quota{})
		time.Sleep(4 * time.Second)
		check("a second request, of which one is counted", ask(0),
			limit.Quota{Known: true, Remaining: 3, Reset: 6 * time.Second},
			limit.Quota{Known: true, Remaining: 98, Reset: 56 * time.Second})
		time.Sleep(time.Millisecond) // the first node must flush first
		check("another node has counted nothing yet", ask(1), limit.Quota{}, limit.Quota{})
		time.Sleep(6*time.Second - time.Millisecond)
		check("nothing is known of a window that has just begun", ask(0),
			limit.Quota{},
			limit.Quota{Known: true, Remaining: 97, Reset: 50 * time.Second})
		for range 5 {
			time.Sleep(10 * time.Millisecond)
			ask(0)
		}
		// The estimate 3×0.998+3 is more than 5. It falls to 5 when the previous window weighs two thirds: at 13⅓ s, rounded
		// up to a microsecond. It is 10.05 s now.
		check("mitigated", ask(1), limit.Quota{Known: true, Reset: 3283334 * time.Microsecond}, limit.Quota{})
	})
}

// The client whose answer counts is told what is left after it, also if the node has heard of a later request before.
func TestQuotaAfterAnAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: login, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 10, period: 1h}]}]")
		defer p.stop()
		l, slow := p.limiters[0], request(1)
		d := l.Decide(&slow, time.Now())
		time.Sleep(time.Second)
		quick := request(1)
		other := l.Decide(&quick, time.Now())
		l.Answered(&other, 401, nil, time.Now())
		time.Sleep(time.Second)
		l.Answered(&d, 401, nil, time.Now())
		if q := l.Quotas(nil, &d, time.Now()); len(q) != 1 || !q[0].Known || q[0].Remaining != 8 {
			t.Errorf("after two answers of ten the client is told %+v", q)
		}
	})
}
