package pop_test

import (
	"net/http"
	"strings"
	"testing"
)

// points limits the cost of answers per address.
const points = "rules: [{id: points, count: {cost: 7, cost_header: x-points}, characteristics: [ip], limits: [{threshold: 100, period: 7d}]}]"

// The origin reports the cost of a request, over each protocol, and the client sees the header.
func TestCostInTheAnswer(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		w := startWired(t, points, func(w http.ResponseWriter, r *http.Request) {
			if cost := r.URL.Query()["cost"]; cost != nil {
				w.Header()["X-POINTS"] = cost
			}
		}, nil)
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		tr := &http.Transport{Protocols: protocols}
		t.Cleanup(tr.CloseIdleConnections)
		ask := func(target string) (status int, remaining, cost string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.addr+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			_, rest, _ := strings.Cut(resp.Header.Get("RateLimit"), ";r=")
			remaining, _, _ = strings.Cut(rest, ";")
			return resp.StatusCode, remaining, resp.Header.Get("X-Points")
		}
		for _, step := range []struct{ target, remaining string }{
			{"/?cost=40", "60"},
			{"/", "53"},
			{"/?cost=1&cost=2", "46"},
			{"/?cost=free", "39"},
			{"/?cost=39", "0"},
		} {
			if status, _, cost := ask(step.target); status != 200 || !strings.Contains(step.target, cost) {
				t.Fatalf("%s: status %d, cost %q", step.target, status, cost)
			}
			await(t, step.remaining+" remain after "+step.target, func() bool {
				_, remaining, _ := ask("/?cost=0")
				return remaining == step.remaining
			})
		}
		if status, _, _ := ask("/?cost=1"); status != 200 {
			t.Fatalf("the request that exceeds the limit got %d", status)
		}
		await(t, "the client is refused", func() bool {
			status, _, _ := ask("/?cost=0")
			return status == http.StatusTooManyRequests
		})
	}
}

// A request counts its cost even if the client does not wait for the answer.
func TestAbandonedCost(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	w := startWired(t, points, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Points", "0")
		if r.Method == http.MethodPost {
			asked <- struct{}{}
			<-answer
			w.Header().Set("X-Points", "101")
		}
	}, nil)
	conn, _ := w.dial(guess)
	<-asked
	_ = conn.Close()
	await(t, "the node knows that the client is gone", func() bool { return w.metric("edge_abandoned_requests_waiting") == 1 })
	w.passes("before the answer")
	close(answer)
	w.mitigated()
}
