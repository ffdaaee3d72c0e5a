package edge_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/edgelimit/edge"
)

// A server whose clients may make 100 requests a minute each.
func Example() {
	limiter, err := edge.New(edge.Options{Rules: edge.PerClient(100, time.Minute)})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close(context.Background())

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	server := httptest.NewServer(limiter.Middleware(mux)) // or http.ListenAndServe
	defer server.Close()

	resp, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Header["Ratelimit-Policy"])
	// Output: 200 ["client";q=100;w=60]
}

// Allow limits things other than HTTP requests: here, a rule counts by a header that nobody sends.
func ExampleLimiter_Allow() {
	limiter, err := edge.New(edge.Options{Rules: `
rules:
  - id: mail
    characteristics: ["header:sender"]
    limits: [{threshold: 20, period: 1h}]
    action: block
    mitigation_timeout: 0s
`})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close(context.Background())

	answer, err := limiter.Allow(context.Background(), "mail", "alice@example.com", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Allowed)
	// Output: true
}

// Frameworks with handlers of their own need Decide: this is middleware for such a framework.
func ExampleLimiter_Decide() {
	limiter, err := edge.New(edge.Options{Rules: edge.PerClient(100, time.Minute)})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close(context.Background())

	handle := func(w http.ResponseWriter, r *http.Request, next func() (status int)) {
		decision := limiter.Decide(r)
		if decision.Refused() {
			decision.Refuse(w, r)
			return
		}
		decision.Header(w.Header())
		decision.Answered(next(), w.Header())
	}
	handle(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), func() int {
		fmt.Println("served")
		return http.StatusOK
	})
	// Output: served
}
