package analysis_test

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// What a rule would have done in a PoP of three nodes that learn of each other's counts and
// mitigations half a second late.
func ExampleEnforcer() {
	rules, err := rule.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]"))
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
	for i := range int64(200) { // a second of a hundred requests, and another one
		enforcer.Add(&accesslog.Entry{
			Time: start + i*10_000, Client: "203.0.113.9", Addr: netip.MustParseAddr("203.0.113.9"),
			Method: "GET", Host: "example.com", Path: "/search", Status: 200,
		})
	}
	if err := enforcer.Report().WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 requests of 1 client from 2024-01-01 00:00:00 to 2024-01-01 00:00:01 (UTC)
	// PoP: 3 nodes, 1 shard, spread by request, lag 500ms, clocks 0s apart
	//
	// all (block)
	//   concerns         200 requests, and counted 79
	//   refused          121 requests (60.5%) of 1 client; the first at 2024-01-01 00:00:00
	//   by exact counts  149 requests
	//   wrongly refused  none
	//   wrongly allowed  28 requests of 1 client: 28 by the lag
	//   mitigations      1, for 1m21.505s at the median, 1m21.505s at most, 1m21.505s in total
	//   client  203.0.113.9  121 requests  since 2024-01-01 00:00:00
	//   path    /search      121 requests
}
