package limit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A limiter without shards counts alone. It decides from memory, and Run counts.
func Example() {
	rules, err := rulefile.Parse("rules.yaml", []byte(`rules: [{id: all, characteristics: [ip], limits: [{threshold: 2, period: 1h}]}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	table := mitigation.New(mitigation.Options{})
	l, err := limit.New(limit.Options{Rules: rules, Table: table, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()

	req := rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.com", Path: "/"}
	passed := 0
	for l.Decide(&req, time.Now()).Verdict == limit.Passed {
		passed++
	}
	fmt.Println(passed >= 2, l.Decide(&req, time.Now()).Verdict)
	stop()
	<-done
	// Output: true blocked
}
