package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
)

// The overview suggests the threshold in a minute that the sweep recommends.
func TestOverviewSuggestsWhatTheSweepDoes(t *testing.T) {
	suggested := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		sweep, err := analysis.NewSweep(analysis.SweepOptions{Periods: []time.Duration{time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		clients, o := map[string]tally{}, &overview{thresholds: analysis.DefaultThresholds()}
		now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC).UnixMicro()
		for range 30_000 {
			now += r.Int64N(20_000)
			client := fmt.Sprintf("192.0.%d.%d", r.IntN(8), r.IntN(256))
			if r.IntN(9) == 0 {
				client = fmt.Sprintf("198.51.100.%d", r.IntN(1+int(seed)%4))
			}
			clients[client] = clients[client].add(now)
			o.Requests++
			if err := sweep.Add(&accesslog.Entry{Time: now, Client: client}); err != nil {
				t.Fatal(err)
			}
		}
		for client, c := range clients {
			o.Clients++
			o.see(c, func() string { return client })
		}
		o.suggest([]string{"access.log"}, "")
		want, got := "none", "none"
		if c := sweep.Report().Curves[0]; c.Best && c.Timeline != nil {
			for _, cell := range c.Cells {
				if cell.Threshold == c.Recommended && cell.Refused > 0 {
					want = fmt.Sprint(c.Recommended)
				}
			}
		}
		for _, next := range o.Next {
			if m := regexp.MustCompile(`threshold: (\d+)`).FindStringSubmatch(next.Command); m != nil {
				got = m[1]
				suggested++
			}
		}
		if got != want {
			t.Errorf("seed %d: the overview suggests %s, the sweep %s", seed, got, want)
		}
	}
	if suggested == 0 {
		t.Error("the overview never suggests a rule")
	}
}
