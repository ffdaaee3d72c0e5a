package limit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A slow limiter keeps each request with its cost, and adds them up for each decision.
type slow struct {
	period    int64 // milliseconds
	threshold int64
	counted   []struct{ at, cost int64 }
}

// over reports whether the estimate exceeds the threshold at now.
func (s *slow) over(now int64) bool {
	window := now / s.period
	sum := int64(0) // the estimate times period
	for _, c := range s.counted {
		switch c.at / s.period {
		case window:
			sum += c.cost * s.period
		case window - 1:
			sum += c.cost * (s.period - now%s.period)
		}
	}
	return sum > s.threshold*s.period
}

// Rules with a cost make the same decisions as a slow reference, on several nodes that share a shard: with a fixed
// cost, with one from the answer, and with invalid ones from the answer.
func TestCostsEqualSlowArithmetic(t *testing.T) {
	for _, test := range []struct {
		name, count string
		cost        func(r *rand.Rand) (counted int64, header http.Header)
	}{
		{"fixed", "cost: 7", func(*rand.Rand) (int64, http.Header) { return 7, nil }},
		{"greater than the threshold", "cost: 1000000", func(*rand.Rand) (int64, http.Header) { return 1e6, nil }},
		{"fixed, by the answer", "cost: 7, statuses: [200]", func(*rand.Rand) (int64, http.Header) { return 7, http.Header{"X-Cost": {"50"}} }},
		{"from the answer", "cost_header: x-cost", func(r *rand.Rand) (int64, http.Header) {
			cost := r.Int64N(40)
			return cost, http.Header{"X-Cost": {fmt.Sprint(cost)}}
		}},
		{"at least the reserve", "cost_header: X-Cost, reserve: 7", func(r *rand.Rand) (int64, http.Header) {
			cost := r.Int64N(40)
			return max(7, cost), http.Header{"X-Cost": {fmt.Sprint(cost)}}
		}},
		{"the reserve and a greater cost of the rule", "cost_header: X-Cost, reserve: 7, cost: 9", func(r *rand.Rand) (int64, http.Header) {
			return 9, http.Header{"X-Cost": {[]string{"-1", "much", "1.5", ""}[r.IntN(4)]}}
		}},
		{"from the answer, not always", "cost: 5, cost_header: X-Cost, statuses: [2xx]", func(r *rand.Rand) (int64, http.Header) {
			switch r.IntN(4) {
			case 0:
				return 5, nil
			case 1:
				return 5, http.Header{"X-Cost": {"1", "1"}}
			case 2:
				return 1e6, http.Header{"X-Cost": {"10000000"}}
			}
			return 9, http.Header{"X-Cost": {"9"}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := startPop(t, 2, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 100, period: 10s}], count: {"+test.count+"}}]")
				defer p.stop()
				random := rand.New(rand.NewPCG(1, 2))
				reference := slow{period: 10_000, threshold: 100}
				passed, refused := 0, 0
				for i := range 600 {
					now := time.Now()
					l := p.limiters[random.IntN(2)]
					req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}
					d := l.Decide(&req, now)
					if want := reference.over(now.UnixMilli()); d.Verdict.Refused() != want {
						t.Fatalf("request %d is %v; the slow limiter refuses it: %t", i+1, d.Verdict, want)
					}
					if d.Verdict.Refused() {
						refused++
					} else {
						passed++
						cost, header := test.cost(random)
						l.Answered(&d, 200, header, now)
						reference.counted = append(reference.counted, struct{ at, cost int64 }{now.UnixMilli(), cost})
					}
					time.Sleep(time.Duration(20+random.IntN(800)) * time.Millisecond)
				}
				if passed < 10 || refused < 10 {
					t.Errorf("%d requests passed and %d were refused: the test covers too little", passed, refused)
				}
			})
		})
	}
}

// The quota falls by the cost of a request, even if several are counted together.
func TestQuotaFallsByTheCost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 100, period: 1m}], count: {cost: 7}}]")
		defer p.stop()
		l := p.limiters[0]
		for i, times := range []uint64{1, 3, 1} {
			req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}
			l.DecideBy([]limit.Ask{{Rule: l.Rules().Rule("a"), Request: &req, Times: times}}, time.Now())
			time.Sleep(20 * time.Millisecond)
			d := l.Look(&req, time.Now())
			q := l.Quotas(nil, &d, time.Now())
			if want := []uint64{93, 72, 65}[i]; len(q) != 1 || !q[0].Known || q[0].Remaining != want {
				t.Errorf("after %d requests together, the quotas are %+v, want %d to remain", times, q, want)
			}
		}
	})
}

// A request whose client does not wait for the answer costs what the answer says, or the rule's own cost if too
// many wait or another proxy does not report it. A metric counts each result.
func TestCostsOfAbandonedAndReportedRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 300, period: 1h}], count: {cost: 3, cost_header: x-cost}}]")
		defer p.stop()
		l := p.limiters[0]
		request := func() *rule.Request { return &rule.Request{Addr: netip.MustParseAddr("192.0.2.1")} }
		left := uint64(300)
		expect := func(what string, cost uint64) {
			t.Helper()
			time.Sleep(20 * time.Millisecond)
			d := l.Look(request(), time.Now())
			q := l.Quotas(nil, &d, time.Now())
			if left -= cost; q[0].Remaining != left {
				t.Errorf("%s: %d remain, want %d", what, q[0].Remaining, left)
			}
			left = q[0].Remaining
		}
		x := func(value string) http.Header { return http.Header{"X-Cost": {value}} }
		var waiting [limit.MaxAbandoned]limit.Decision
		d := l.Decide(request(), time.Now())
		l.Answered(&d, 200, x("1"), time.Now())
		expect("answered", 1)
		for i := range waiting {
			waiting[i] = l.Decide(request(), time.Now())
			if !l.Abandon(&waiting[i], time.Now()) {
				t.Fatalf("request %d is not waiting", i)
			}
		}
		more := l.Decide(request(), time.Now())
		if l.Abandon(&more, time.Now()) {
			t.Error("one request too many is waiting")
		}
		expect("one that does not wait", 0)
		for i := range waiting[4:] {
			l.Resolve(&waiting[4+i], 200, x("2"), time.Now())
		}
		expect("60 answered with 2", 120)
		l.Forsake(&waiting[3], time.Now())
		expect("one that stops waiting", 0)
		l.Resolve(&waiting[0], 0, nil, time.Now())
		expect("not answered", 0)
		l.Resolve(&waiting[1], 500, nil, time.Now())
		expect("answered without a cost", 3)
		l.Report(request(), 200, x("20"), time.Now())
		expect("reported", 20)
		d = l.Decide(request(), time.Now())
		l.Abandon(&d, time.Now())
		l.Forsake(&d, time.Now())
		expect("one that stops waiting, below half of the threshold", 0)
		l.Report(request(), 200, x("20"), time.Now())
		expect("reported, above half of the threshold", 20)
		l.Forsake(&waiting[2], time.Now())
		expect("one that stops waiting, above half of the threshold", 3)
		l.Report(request(), 200, nil, time.Now())
		expect("reported without a cost", 3)
		l.Report(request(), 200, x("0"), time.Now())
		expect("reported with 0", 0)
		l.Report(request(), 200, x("none"), time.Now())
		expect("reported with a word", 3)
		malformed := request()
		malformed.Malformed = true
		l.Report(malformed, 200, x("20"), time.Now())
		expect("reported, but malformed", 0)
		for result, want := range map[string]float64{"valid": 64, "missing": 2, "invalid": 1} {
			if got := value(t, p.registries[0], "edge_cost_headers_total", result); got != want {
				t.Errorf("%v answers had a cost that is %s, want %v", got, result, want)
			}
		}
		if problems, err := testutil.GatherAndLint(p.registries[0], "edge_cost_headers_total"); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
	})
}
