package analysis_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// paced draws the times of one client's requests, in microseconds after newYear: bursts, pauses, and many at
// the same time.
func paced(t *rapid.T) (times []int64) {
	pauses := rapid.SliceOfN(rapid.SampledFrom([]int64{0, 0, 1, 1000, 100_000, 500_000, 1_000_000, 3_000_000, 11_000_000}), 1, 150).Draw(t, "pauses")
	now := int64(0)
	for _, pause := range pauses {
		now += pause
		times = append(times, now)
	}
	return times
}

// play returns which requests of one client pass a PoP.
func play(t *rapid.T, o analysis.PoPOptions, threshold int, timeout string, times []int64) (passed []bool) {
	rules, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 5s}], mitigation_timeout: %s}]", threshold, timeout))
	if err != nil {
		t.Fatal(err)
	}
	s, err := analysis.NewSimulation(o, rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range times {
		d := s.Decide(&accesslog.Entry{Time: newYear.UnixMicro() + at, Client: "1", Method: "GET", Path: "/", Status: 200})
		passed = append(passed, !d.Verdict.Refused())
	}
	return passed
}

// drawnPoP draws a PoP with faults, but with equal clocks.
func drawnPoP(t *rapid.T) analysis.PoPOptions {
	o := analysis.PoPOptions{
		Nodes:  rapid.IntRange(1, 4).Draw(t, "nodes"),
		Shards: rapid.IntRange(1, 3).Draw(t, "shards"),
		Spread: rapid.SampledFrom([]analysis.Spread{analysis.ByConnection, analysis.ByRequest}).Draw(t, "spread"),
		Lag:    rapid.SampledFrom([]time.Duration{0, time.Millisecond, 700 * time.Millisecond, 4 * time.Second, 20 * time.Second}).Draw(t, "lag"),
	}.WithSeed(rapid.Uint64().Draw(t, "seed"))
	for range rapid.IntRange(0, 3).Draw(t, "losses") {
		o.Losses = append(o.Losses, analysis.Loss{
			Shard: rapid.IntRange(0, o.Shards-1).Draw(t, "lost"),
			At:    time.Duration(rapid.IntRange(0, 60_000).Draw(t, "at ms")) * time.Millisecond,
			For:   time.Duration(rapid.IntRange(0, 20_000).Draw(t, "for ms")) * time.Millisecond,
		})
	}
	return o.WithWaiting(rapid.SampledFrom([]int{20, 200}).Draw(t, "waiting"))
}

// A client whose estimate would never exceed the threshold without lag or loss is never refused, whatever the lag
// or loss.
func TestInnocentClientsPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := paced(t)
		limit := counter.Limit{Period: 5e6, Layout: counter.Plain}
		numbers := map[int64]uint64{}
		for _, at := range times { // the smallest threshold that it does not exceed
			window, elapsed := counter.Window(newYear.Add(time.Duration(at)*time.Microsecond), limit.Period)
			numbers[window]++
			for limit.Over(numbers[window-1], numbers[window], elapsed) {
				limit.Threshold++
			}
		}
		timeout := rapid.SampledFrom([]string{"0s", "10s"}).Draw(t, "timeout")
		for i, ok := range play(t, drawnPoP(t), int(limit.Threshold), timeout, times) {
			if !ok {
				t.Fatalf("request %d of a client that never exceeds %d is refused", i+1, limit.Threshold)
			}
		}
	})
}

// Without lag, a key passes at most 2·threshold + 1 requests in any period.
func TestPassedRequestsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := paced(t)
		threshold := rapid.IntRange(1, 8).Draw(t, "threshold")
		o := analysis.PoPOptions{Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"), Spread: analysis.ByRequest}
		var passed []int64
		for i, ok := range play(t, o, threshold, rapid.SampledFrom([]string{"0s", "10s"}).Draw(t, "timeout"), times) {
			if ok {
				passed = append(passed, times[i])
			}
		}
		for i, last := range passed {
			n := 0
			for _, at := range passed[:i+1] {
				if at > last-5e6 {
					n++
				}
			}
			if n > 2*threshold+1 {
				t.Fatalf("%d requests pass in 5 s, want at most %d", n, 2*threshold+1)
			}
		}
	})
}
