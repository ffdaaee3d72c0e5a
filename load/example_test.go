package load_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/edgelimit/edge/load"
)

// It sends a hundred requests, as fast as the target answers.
func ExampleRun() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	target, err := load.ParseTarget(context.Background(), server.URL, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := load.Run(context.Background(), load.Options{
		Targets:    []load.Target{target},
		Source:     &load.Steady{Clients: 10, Look: load.Look{Method: "GET", Target: "/"}},
		ClosedLoop: true,
		Requests:   100,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Report().Statuses)
	// Output: map[204:100]
}
