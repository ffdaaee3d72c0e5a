package pop_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/edgelimit/edge/pop"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Three nodes in one process count a client together, whichever node it reaches.
func ExampleStartLocal() {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer origin.Close()
	rules, err := rulefile.Parse("rules.yaml", []byte(`rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1h}]}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	local, err := pop.StartLocal(pop.LocalOptions{
		Nodes:  3,
		Listen: "127.0.0.1:0",
		Node:   pop.Options{Rules: rules, Origin: origin.URL, Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Stop(context.Background())

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // each connection goes to another node
	passed := 0
	for {
		resp, err := client.Get("http://" + local.Addr().String())
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			fmt.Println(resp.StatusCode, passed >= 10)
			return
		}
		passed++
	}
	// Output: 429 true
}
