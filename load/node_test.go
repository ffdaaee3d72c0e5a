package load_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/rule"
)

// The oracle finds no fault with the code of real nodes, whatever the rule, as long as their lag is within
// its bound.
func TestNodesHaveNoFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]string{
			"{threshold: 5, period: 2s}", "{threshold: 10, period: 10s}", "{threshold: 3, period: 1s}, {threshold: 12, period: 10s}",
			"{threshold: 10, period: 10s, sub_windows: auto}", "{threshold: 20, period: 6s, sub_windows: 4}",
			"{threshold: 10, period: 5s, estimate: fixed}", "{threshold: 10, period: 6s, sub_windows: 4, estimate: whole_oldest}",
		}).Draw(t, "limits")
		timeout := rapid.SampledFrom([]string{"0s", "1s", "15s"}).Draw(t, "timeout")
		more := rapid.SampledFrom([]string{"", ", {id: more, characteristics: [ip], limits: [{threshold: 20, period: 15s}], mitigation_timeout: 3s}"}).Draw(t, "another rule")
		rules, err := rule.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: [%s], mitigation_timeout: %s}%s]", limits, timeout, more))
		if err != nil {
			t.Fatal(err)
		}
		o := analysis.PoPOptions{
			Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"), Spread: analysis.ByRequest, Seed: rapid.Uint64().Draw(t, "seed"),
			Lag:  time.Duration(rapid.SampledFrom([]int{0, 2, 30}).Draw(t, "lag in ms")) * time.Millisecond,
			Skew: time.Duration(rapid.SampledFrom([]int{0, 4}).Draw(t, "skew in ms")) * time.Millisecond,
		}
		sim, err := analysis.NewSimulation(o, rules)
		if err != nil {
			t.Fatal(err)
		}
		source := &load.Steady{Clients: 3}
		began := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
		at := time.Duration(0)
		gaps := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 7, 50, 50, 150, 400, 900}), 50, 400).Draw(t, "gaps in ms")
		clients := rapid.SliceOfN(rapid.SampledFrom([]uint64{0, 0, 0, 1, 2}), len(gaps), len(gaps)).Draw(t, "clients")
		requests := make([]load.Decided, len(gaps))
		for i, gap := range gaps {
			at += time.Duration(gap) * time.Millisecond
			now := began.Add(at).Add(500 * time.Microsecond) // in the middle
			addr := source.Addr(clients[i])
			d := sim.Decide(&accesslog.Entry{Time: now.UnixMicro(), Client: addr.String(), Addr: addr, Method: "GET", Host: "example.com", Path: "/", Status: 200})
			requests[i] = load.Decided{At: at, Client: clients[i], Refused: d.Verdict.Refused()}
			if d.Verdict.Refused() {
				requests[i].RetryAfter = uint32(max(1, (d.Deadline().Sub(now)+time.Second-1)/time.Second))
			}
		}
		// Nodes count sub-windows in ticks of 10 ms: a request may count as that much older.
		s, err := load.DecidedLog(began, source, requests).Score(load.OracleOptions{Rules: rules, Lag: 4*o.Lag + 10*time.Millisecond, Skew: o.Skew/2 + 10*time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Faults {
			t.Errorf("%s: %s (%d of %d requests)", f.Name, f.Text, f.Requests, len(requests))
		}
		if s.InnocentRefused > 0 {
			t.Errorf("%d innocent requests refused", s.InnocentRefused)
		}
	})
}
