package analysis_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
	"github.com/edgelimit/edge/pop/rulefile"
)

func parse(tb testing.TB, rules string) *rule.Set {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// BenchmarkEnforcer measures a request that the exact PoP and the given ones decide.
func BenchmarkEnforcer(b *testing.B) {
	rules := parse(b, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}], mitigation_timeout: 1m}]")
	for name, pop := range map[string]analysis.PoPOptions{
		"one node":   {},
		"three late": {Nodes: 3, Shards: 3, Lag: 2e6},
	} {
		b.Run(name, func(b *testing.B) {
			f, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: rules, PoP: pop})
			if err != nil {
				b.Fatal(err)
			}
			const clients = 10_000
			var entries [clients]accesslog.Entry
			for i := range entries {
				addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				entries[i] = accesslog.Entry{Client: addr.String(), Addr: addr, Method: "GET", Host: "example.com", Path: fmt.Sprint("/", i%100), Status: 200}
			}
			random := rand.New(rand.NewPCG(1, 1))
			now := int64(1_700_000_000e6)
			b.ReportAllocs()
			for b.Loop() {
				e := &entries[random.IntN(clients)]
				if random.IntN(10) > 0 {
					e = &entries[random.IntN(clients/10)]
				}
				e.Time = now
				f.Add(e)
				now += 1000
			}
			report := f.Report()
			b.ReportMetric(100*float64(report.Refused)/float64(report.Requests), "refused-%")
		})
	}
}
