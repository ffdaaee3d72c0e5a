package limit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// The reserve counts on arrival, the rest when the body has ended: what the JSON says, or else the rule's cost. Only
// the last 16 KiB of a body matter. A metric says why a cost is not that of the body.
func TestCostInTheBody(t *testing.T) {
	const event = "data: {\"usage\": {\"total_tokens\": %s}}\n\n"
	long := func(n int) string { return strings.Repeat(`\\\"{,[`, n/7) } // as the text of a JSON string
	for _, test := range []struct {
		name, contentType, encoding, body string
		want                              uint64
		result                            string
	}{
		{"JSON", "application/json", "", `{"usage": {"total_tokens": 70}}`, 70, "valid"},
		{"JSON with a charset", "Application/JSON; charset=utf-8", "identity", `{"usage": {"total_tokens": 70}}`, 70, "valid"},
		{"less than the reserve", "application/json", "", `{"usage": {"total_tokens": 3}}`, 10, "valid"},
		{"long JSON", "application/json", "", `{"text": "` + long(40<<10) + `", "usage": {"total_tokens": 70, "x": [1, 2]}, "y": "` + long(10<<10) + `"}`, 70, "valid"},
		{"long JSON with the cost in a text", "application/json", "", `{"a": "` + long(20<<10) + `\", \"usage\": {\"total_tokens\": 11}", "b": {"usage": {"total_tokens": 12}}, "usage": {"total_tokens": 70}}`, 70, "valid"},
		{"long JSON that begins in a member", "application/json", "", `{"a": {"b": "` + strings.Repeat("x", 15<<10) + `", "c": "` + long(20<<10) + `", "d": 1}, "usage": {"total_tokens": 70}}`, 70, "valid"},
		{"JSON that is a byte too long", "application/json", "", `{"a": "` + strings.Repeat("x", 16<<10+1-len(`{"a": "", "usage": {"total_tokens": 70}}`)) + `", "usage": {"total_tokens": 70}}`, 70, "valid"},
		{"long JSON with the cost too early", "application/json", "", `{"usage": {"total_tokens": 70}, "text": "` + long(20<<10) + `"}`, 30, "missing"},
		{"JSON that ends early", "application/json", "", `{"usage": {"total_tokens": 70}`, 30, "missing"},
		{"another member", "application/json", "", `{"usage": {"total": 70}}`, 30, "missing"},
		{"a number that has no members", "application/json", "", `{"usage": 70}`, 30, "missing"},
		{"null", "application/json", "", `{"usage": {"total_tokens": null}}`, 30, "missing"},
		{"negative", "application/json", "", `{"usage": {"total_tokens": -70}}`, 30, "invalid"},
		{"a fraction", "application/json", "", `{"usage": {"total_tokens": 70.5}}`, 30, "invalid"},
		{"a string", "application/json", "", `{"usage": {"total_tokens": "70"}}`, 30, "invalid"},
		{"an object", "application/json", "", `{"usage": {"total_tokens": {}}}`, 30, "invalid"},
		{"too great", "application/json", "", `{"usage": {"total_tokens": 1000001}}`, 1_000_000, "invalid"},
		{"compressed", "application/json", "gzip", `{"usage": {"total_tokens": 70}}`, 30, "compressed"},
		{"text", "text/plain", "gzip", `{"usage": {"total_tokens": 70}}`, 30, "missing"},
		{"no body", "application/json", "", "", 30, "missing"},
		{"events", "text/event-stream", "", "data: {\"choices\": [], \"usage\": null}\n\n" + fmt.Sprintf(event, "70") + "data: [DONE]\n\n", 70, "valid"},
		{"several events", "text/event-stream", "", fmt.Sprintf(event+event, "60", "70"), 70, "valid"},
		{"events with CRLF", "text/event-stream; charset=utf-8", "", ": hi\r\n\r\nevent: a\r\ndata:{\"usage\":\r\ndata:{\"total_tokens\":70}}\r\nid: 1\r\n\r\n", 70, "valid"},
		{"events that end early", "text/event-stream", "", fmt.Sprintf(event, "70") + "data: {\"usage\": {\"total_", 70, "valid"},
		{"long events", "text/event-stream", "", strings.Repeat(fmt.Sprintf(event, "60"), 2000) + fmt.Sprintf(event, "70"), 70, "valid"},
		{"long events that begin in a text with an event", "text/event-stream", "", "data: " + fmt.Sprintf(event, "11") + ":" + strings.Repeat("x", 16<<10-len(fmt.Sprintf(event, "11"))-1), 30, "missing"},
		{"a text with an event", "text/event-stream", "", fmt.Sprintf(event, "70") + "data: {\"text\": \"data: {\\\"usage\\\": {\\\"total_tokens\\\": 11}}\\n\\n\"}\n\n", 70, "valid"},
		{"events without the cost", "text/event-stream", "", "data: {}\n\ndata: [DONE]\n\n", 30, "missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 2000000, period: 1h}], count: {cost_json: usage.total_tokens, reserve: 10, cost: 30}}]")
				defer p.stop()
				l := p.limiters[0]
				counted := func() uint64 {
					time.Sleep(20 * time.Millisecond)
					d := l.Look(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}, time.Now())
					return 2_000_000 - l.Quotas(nil, &d, time.Now())[0].Remaining
				}
				for size := 1; size < 100_000; size = size*7 + 1 {
					before := uint64(0)
					if size > 1 {
						before = counted()
					}
					d := l.Decide(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}, time.Now())
					if got := counted() - before; got != 10 {
						t.Fatalf("%d on arrival, want 10", got)
					}
					header := http.Header{"Content-Type": {test.contentType}}
					if test.encoding != "" {
						header.Set("Content-Encoding", test.encoding)
					}
					l.Answered(&d, 200, header, time.Now())
					if got := counted() - before; got != 10 {
						t.Fatalf("%d with the header, want 10", got)
					}
					for rest := []byte(test.body); len(rest) > 0; rest = rest[min(size, len(rest)):] {
						d.Body(rest[:min(size, len(rest))])
					}
					l.EndBody(&d, true, time.Now())
					l.EndBody(&d, true, time.Now()) // does nothing
					if got := counted() - before; got != test.want {
						t.Fatalf("in parts of %d bytes: %d in all, want %d", size, got, test.want)
					}
					if value(t, p.registries[0], "edge_cost_headers_total", test.result) == 0 {
						t.Errorf("no cost is %s", test.result)
					}
					if test.want == 1_000_000 {
						break
					}
				}
			})
		})
	}
}

// A report has the cost itself, and an answer that is withheld or never comes costs what the rule says.
func TestReserveOfOtherRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 1000, period: 1h}], count: {cost_json: usage.total_tokens, reserve: 10, cost: 30}}]")
		defer p.stop()
		l, sum := p.limiters[0], uint64(0)
		request := func() *rule.Request { return &rule.Request{Addr: netip.MustParseAddr("192.0.2.1")} }
		expect := func(what string, cost uint64) {
			t.Helper()
			time.Sleep(20 * time.Millisecond)
			d := l.Look(request(), time.Now())
			sum += cost
			if q := l.Quotas(nil, &d, time.Now()); q[0].Remaining != 1000-sum {
				t.Errorf("%s: %d are counted, want %d", what, 1000-q[0].Remaining, sum)
			}
		}
		d := l.Decide(request(), time.Now())
		expect("asked", 10)
		l.Report(request(), 200, http.Header{"Usage.total_tokens": {"70"}}, time.Now())
		expect("reported", 60)
		l.Report(request(), 200, nil, time.Now())
		expect("reported without a cost", 20)
		l.Abandon(&d, time.Now())
		l.Forsake(&d, time.Now())
		expect("abandoned, below half of the threshold", 0)
		l.Report(request(), 200, http.Header{"Usage.total_tokens": {"510"}}, time.Now())
		expect("reported", 500)
		d = l.Decide(request(), time.Now())
		l.Abandon(&d, time.Now())
		l.Forsake(&d, time.Now())
		expect("abandoned, above half of the threshold", 30)
		d, e, f := l.Decide(request(), time.Now()), l.Decide(request(), time.Now()), l.Decide(request(), time.Now())
		expect("three requests", 30)
		r := l.Rules().Rules()[0]
		l.DecideBy([]limit.Ask{{Rule: r, Request: request()}}, time.Now())
		expect("asked by rule", 0)
		l.DecideBy([]limit.Ask{{Rule: r, Request: request(), Times: 70, Report: true}}, time.Now())
		expect("reported by rule", 70)
		l.DecideBy([]limit.Ask{{Rule: r, Request: request(), Times: 3, Report: true}}, time.Now())
		expect("reported by rule, less than the reserve", 10)
		l.Report(request(), 200, http.Header{"Usage.total_tokens": {"1000"}}, time.Now())
		time.Sleep(20 * time.Millisecond)
		for i, d := range []*limit.Decision{&d, &e, &f} {
			l.Answered(d, 200, http.Header{"Content-Type": {"application/json"}}, time.Now())
			if withheld := l.Withholds(d, netip.MustParseAddr("192.0.2.1"), time.Now()); withheld != (i > 0) {
				t.Errorf("answer %d is withheld: %t", i+1, withheld)
			}
		}
		if got := value(t, p.registries[0], "edge_cost_headers_total", "missing"); got != 3 {
			t.Errorf("%v costs are missing, want those of a report and of two answers that are withheld", got)
		}
	})
}

// A client that makes the origin echo an object, and leaves right after that, does not choose its cost.
func TestCostInPartOfABody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 1000, period: 1h}], count: {cost_json: usage.total_tokens, cost: 30}}]")
		defer p.stop()
		l, req := p.limiters[0], rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}
		text := `{"text": "` + strings.Repeat("x", 20<<10) + `", "echo": {"a": 1, "usage": {"total_tokens": 1}}`
		for _, status := range []int{200, 206} {
			d := l.Decide(&req, time.Now())
			l.Answered(&d, status, http.Header{"Content-Type": {"application/json"}}, time.Now())
			d.Body([]byte(text))
			l.EndBody(&d, status == 206, time.Now())
		}
		time.Sleep(20 * time.Millisecond)
		d := l.Look(&req, time.Now())
		if q := l.Quotas(nil, &d, time.Now()); q[0].Remaining != 1000-2*30 {
			t.Errorf("%d are counted, want 60", 1000-q[0].Remaining)
		}
	})
}

// Whatever a body is, reading it does not fail.
func TestAnyBody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 1000, period: 1h}], count: {cost_json: a.b}}]")
		defer p.stop()
		random := rand.New(rand.NewPCG(1, 2))
		words := []string{"{", "}", "[", "]", `"`, `\`, ",", ":", "a", "b", "data:", "\n", "\r", " ", "1", strings.Repeat("x", 16<<10)}
		for i := range 5000 {
			d := p.limiters[0].Decide(&rule.Request{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}, time.Now())
			p.limiters[0].Answered(&d, 200, http.Header{"Content-Type": {[]string{"application/json", "text/event-stream"}[i%2]}}, time.Now())
			for range random.IntN(60) {
				d.Body([]byte(words[random.IntN(len(words))]))
			}
			p.limiters[0].EndBody(&d, true, time.Now())
		}
	})
}
