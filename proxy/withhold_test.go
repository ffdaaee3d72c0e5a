package proxy_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/proxy"
)

const guesses = "rules: [{id: login, match: {paths: [/login]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 5, period: 1h}], mitigation_timeout: 1h}]"

// Guesses that reach the origin at the same time give a client no more answers than guesses one after another: one more
// than the threshold. The node refuses all other guesses, even the right one.
func TestAnswersAreWithheld(t *testing.T) {
	const clients = 1000
	reg := prometheus.NewRegistry()
	var all sync.WaitGroup
	all.Add(clients)
	release, answered := make(chan struct{}), make(chan struct{}, clients)
	at := front(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		<-release
		if r.URL.RawQuery == "right" {
			for range clients - 1 { // after all wrong ones
				<-answered
			}
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		w.(http.Flusher).Flush()
		answered <- struct{}{}
	}, func(o *proxy.Options) { o.Registerer = reg })
	c := client(t)
	statuses := make(chan int)
	for i := range clients {
		if byHTTP3 && i%100 == 0 {
			c = client(t) // each has one connection
		}
		go func(c *http.Client) {
			query := fmt.Sprint(i)
			if i == 0 {
				query = "right"
			}
			resp, err := c.Get(at + "/login?" + query)
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("Refusal-Id") == "") {
				t.Errorf("refused with %v", resp.Header)
			}
			statuses <- resp.StatusCode
		}(c)
	}
	all.Wait()
	close(release)
	got := map[int]int{}
	for range clients {
		got[<-statuses]++
	}
	if got[200] > 0 || got[401] != 6 || got[429] != clients-6 {
		t.Errorf("statuses %v, want 6 times 401, then 429", got)
	}
	if withheld := sum(t, reg, "edge_responses_withheld_total"); withheld != clients-6 {
		t.Errorf("edge_responses_withheld_total = %v", withheld)
	}
}

// A client that does not exceed the threshold gets all answers, however many requests it has in flight, and so do
// others while one is refused.
func TestInnocentAnswersAreDelivered(t *testing.T) {
	var all sync.WaitGroup
	all.Add(100)
	at := front(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		all.Wait()
		if r.URL.RawQuery < "05" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, nil)
	c := client(t)
	statuses := make(chan int)
	for i := range 100 {
		go func() {
			resp, err := c.Get(fmt.Sprintf("%s/login?%02d", at, i))
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	got := map[int]int{}
	for range 100 {
		got[<-statuses]++
	}
	if got[200] != 95 || got[401] != 5 {
		t.Errorf("statuses %v, want 95 times 200 and 5 times 401", got)
	}
}
