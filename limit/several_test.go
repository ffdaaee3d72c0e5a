package limit_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// ask sends a request to a node, answers it with a status if it passes, and waits until it is
// counted.
func (p *testPop) ask(req rule.Request, status int) limit.Decision {
	req.Addr = netip.MustParseAddr("192.0.2.1")
	l := p.limiters[0]
	d := l.Decide(&req, time.Now())
	l.Answered(&d, status, nil, time.Now())
	time.Sleep(20 * time.Millisecond)
	return d
}

// headers returns requests with these values of X-Api-Key.
func headers(values ...string) rule.Request {
	return rule.Request{Header: map[string][]string{"X-Api-Key": values}}
}

// A client that adds a new value to its own with each request is counted by its own value, wherever that is in
// the request, and also by rules that count answers.
func TestOneOfSeveralValuesIsCounted(t *testing.T) {
	for _, test := range []struct {
		name, rule string
		request    func(own, random string) rule.Request
	}{
		{"header", "characteristics: [header:x-api-key]", func(own, random string) rule.Request { return headers(own, random) }},
		{"header, the second", "characteristics: [{header: x-api-key, missing: skip}]", func(own, random string) rule.Request { return headers(random, own) }},
		{"header of three", "characteristics: [header:x-api-key]", func(own, random string) rule.Request { return headers(random, own, random+"x") }},
		{"cookie", "characteristics: [cookie:sid]", func(own, random string) rule.Request {
			return rule.Request{Header: map[string][]string{"Cookie": {"sid=" + own + "; sid=" + random}}}
		}},
		{"cookie in another header", "characteristics: [cookie:sid]", func(own, random string) rule.Request {
			return rule.Request{Header: map[string][]string{"Cookie": {"sid=" + random, "sid=" + own}}}
		}},
		{"parameter", "characteristics: [query:user]", func(own, random string) rule.Request {
			return rule.Request{Query: "user=" + own + "&user=" + random}
		}},
		{"with an address", "characteristics: [ip, query:user]", func(own, random string) rule.Request {
			return rule.Request{Query: "user=" + own + "&user=" + random}
		}},
		{"path", "characteristics: [path]", func(own, random string) rule.Request { return rule.Request{Path: "//" + random + "/" + own} }},
		{"answers", "characteristics: [query:user], count: {statuses: [401]}", func(own, random string) rule.Request {
			return rule.Request{Query: "user=" + own + "&user=" + random}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := startPop(t, 1, 1, "rules: [{id: a, limits: [{threshold: 5, period: 1m}], "+test.rule+"}]")
				defer p.stop()
				passed := 0
				for i := range 20 {
					if !p.ask(test.request("own", fmt.Sprint("random", i)), 401).Verdict.Refused() {
						passed++
					}
				}
				if passed != 6 {
					t.Errorf("%d of 20 requests passed, want 6: the one that exceeds the limit of 5 is the last", passed)
				}
				if d := p.ask(test.request("another", "random99"), 401); d.Verdict != limit.Passed {
					t.Errorf("a request with another value is %v", d.Verdict)
				}
			})
		})
	}
}

// A request that is refused because of one of its values does not count under the others.
func TestRefusedRequestCountsUnderNoValue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, limits: [{threshold: 5, period: 1m}], characteristics: [header:x-api-key]}]")
		defer p.stop()
		for range 6 {
			p.ask(headers("attacker"), 200)
		}
		for range 20 {
			if d := p.ask(headers("victim", "attacker"), 200); d.Verdict != limit.Blocked {
				t.Fatalf("a request with a mitigated value is %v, want it blocked", d.Verdict)
			}
		}
		for i := range 5 {
			if d := p.ask(headers("victim"), 200); d.Verdict != limit.Passed {
				t.Fatalf("request %d with the other value alone is %v", i+1, d.Verdict)
			}
		}
	})
}

// Requests with too many values to count one by one are counted together, per client if the rule also counts by
// ip.
func TestTooManyValuesShareOneCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, limits: [{threshold: 5, period: 1m}], characteristics: [header:x-api-key]}]")
		defer p.stop()
		passed := 0
		for i := range 20 {
			values := []string{"own"}
			for j := range 4 + i {
				values = append(values, fmt.Sprint("random", i, j))
			}
			if !p.ask(headers(values...), 200).Verdict.Refused() {
				passed++
			}
		}
		if passed != 6 {
			t.Errorf("%d of 20 requests with five or more values passed, want 6", passed)
		}
		if d := p.ask(headers("own"), 200); d.Verdict != limit.Passed {
			t.Errorf("a request with one of the values is %v, want it passed", d.Verdict)
		}
		if d := p.ask(headers("own", "a", "b", "c", "own"), 200); d.Verdict != limit.Passed {
			t.Errorf("a request with four distinct values is %v, want it passed", d.Verdict)
		}
	})
}

// With several values, the client gets the smallest quota.
func TestQuotasOfSeveralValues(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, limits: [{threshold: 9, period: 1m}], characteristics: [header:x-api-key]}, {id: b, limits: [{threshold: 99, period: 1m}], characteristics: [ip]}]")
		defer p.stop()
		told := func(values ...string) string {
			d := p.ask(headers(values...), 200)
			text := ""
			for _, q := range p.limiters[0].Quotas(nil, &d, time.Now()) {
				text += fmt.Sprintf("%s %t %d, ", q.Rule.ID, q.Known, q.Remaining)
			}
			return text
		}
		for range 4 {
			told("x")
		}
		if got, want := told("y"), "a true 8, b true 94, "; got != want {
			t.Errorf("a request with one value gets %q, want %q", got, want)
		}
		if got, want := told("x", "y"), "a true 4, b true 93, "; got != want {
			t.Errorf("a request with two values gets %q, want %q", got, want)
		}
		if got, want := told("y", "x"), "a true 3, b true 92, "; got != want {
			t.Errorf("a request with two values gets %q, want %q", got, want)
		}
		for range 3 {
			told("x") // has none left
		}
		req := headers("x", "unknown")
		req.Addr = netip.MustParseAddr("192.0.2.1")
		d := p.limiters[0].Look(&req, time.Now())
		if q := p.limiters[0].Quotas(nil, &d, time.Now()); len(q) != 2 || q[0].Known {
			t.Errorf("a request with a value of unknown count gets %+v, want an unknown quota", q)
		}
	})
}

// A request is refused if one of its keys has no shard and the rule fails closed.
func TestFailClosedForOneOfSeveralValues(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 3, "rules: [{id: a, limits: [{threshold: 99, period: 1m}], characteristics: [header:x-api-key], on_failure: closed}]")
		defer p.stop()
		_ = p.pipes[0].Close()
		verdicts := map[string]limit.Verdict{}
		for range 20 { // until the breaker opens
			for i := range 30 {
				v := fmt.Sprint(i)
				verdicts[v] = p.ask(headers(v), 200).Verdict
			}
		}
		up, down := "", ""
		for v, verdict := range verdicts {
			if verdict == limit.Passed {
				up = v
			} else {
				down = v
			}
		}
		if up == "" || down == "" {
			t.Fatalf("verdicts are %v, want both", verdicts)
		}
		for _, values := range [][]string{{up, down}, {down, up}} {
			if d := p.ask(headers(values...), 200); d.Verdict != limit.Unavailable {
				t.Errorf("a request with the values %q is %v, want it unavailable", values, d.Verdict)
			}
		}
	})
}

// However the answers to a client's simultaneous requests interleave with each other and with the loop, exactly one
// answer more than the threshold reaches the client.
func TestSimultaneousAnswers(t *testing.T) {
	p := startPop(t, 1, 1, `rules: [{id: login, count: {statuses: [401]}, characteristics: [ip],
  limits: [{threshold: 5, period: 1h}], mitigation_timeout: 1h}]`)
	defer p.stop()
	l := p.limiters[0]
	for round := range 2000 {
		client := netip.AddrFrom4([4]byte{10, 0, byte(round >> 8), byte(round)})
		var delivered atomic.Int64
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 40 {
			all.Go(func() {
				req := rule.Request{Addr: client, Method: "POST", Host: "example.com", Path: "/login"}
				d := l.Decide(&req, time.Now())
				<-begin
				runtime.Gosched()
				l.Answered(&d, http.StatusUnauthorized, nil, time.Now())
				if !l.Withholds(&d, client, time.Now()) {
					delivered.Add(1)
				}
			})
		}
		time.Sleep(500 * time.Microsecond) // most are decided, and the loop keeps up with the mitigations
		close(begin)
		all.Wait()
		if n := delivered.Load(); n != 6 {
			t.Fatalf("%d answers reach client %d, want 6", n, round)
		}
	}
}

// An answer that comes long after a mitigation has begun is withheld, although it is the first in its window.
func TestLateAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `rules: [{id: login, count: {statuses: [401]}, characteristics: [ip],
  limits: [{threshold: 1, period: 1s}], mitigation_timeout: 1h}]`)
		defer p.stop()
		l := p.limiters[0]
		var all [3]limit.Decision
		for i := range all {
			req := request(1)
			all[i] = l.Decide(&req, time.Now())
		}
		for i := range all {
			if i == 2 {
				time.Sleep(10 * time.Second)
			}
			l.Answered(&all[i], http.StatusUnauthorized, nil, time.Now())
			client := request(1)
			if withheld := l.Withholds(&all[i], client.Addr, time.Now()); withheld != (i == 2) {
				t.Errorf("answer %d is withheld: %t", i+1, withheld)
			}
		}
	})
}
