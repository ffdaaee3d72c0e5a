package analysis_test

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// This is what a rule would have done in a PoP of three nodes that learn of each other's counts and mitigations
// half a second late.
func ExampleEnforcer() {
	rules, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]"))
	if err != nil {
		fmt.Println(err)
		return
	}
	enforcer, err := analysis.NewEnforcer(analysis.EnforcementOptions{
		Rules: rules,
		PoP:   analysis.PoPOptions{Nodes: 3, Spread: analysis.ByRequest, Lag: 500 * time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for i := range int64(200) { // a hundred requests in each of two seconds
		enforcer.Add(&accesslog.Entry{
			Time: start + i*10_000, Client: "203.0.113.9", Addr: netip.MustParseAddr("203.0.113.9"),
			Method: "GET", Host: "example.com", Path: "/search", Status: 200,
		})
	}
	if err := enforcer.Report().Document().WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 requests of 1 client from 2024-01-01 00:00:00 to 2024-01-01 00:00:01 (UTC)
	//
	// Rule all (block)
	//   All requests are counted for each client address; once one has more than 50 in 1m, its further
	//   requests are refused with 429 Too Many Requests until the estimate is back at the threshold.
	//   matches          200  79 requests counted
	//   refused          121  60.5% of them, from 1 client; the first at 2024-01-01 00:00:00
	//   by exact counts  149
	//   wrongly refused  0
	//   wrongly allowed  28   from 1 client: 28 due to the lag
	//   mitigations      1    median 1m21.505s, longest 1m21.505s, total 1m21.505s
	//
	//   Clients with the most refusals
	//   client       refused  share
	//   203.0.113.9      121   100%  since 2024-01-01 00:00:00
	//
	//   Paths with the most refusals
	//   path     refused  share
	//   /search      121   100%
	//
	//   PoP: 3 nodes, 1 shard, spread by request, lag 500ms, clocks 0s apart. A decision is wrong if
	//   exact counts, without lag or loss, would decide otherwise.
}
