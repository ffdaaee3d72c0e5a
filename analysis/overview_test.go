package analysis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		var o analysis.Overview
		now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC).UnixMicro()
		for range 30_000 {
			now += r.Int64N(20_000)
			client := fmt.Sprintf("192.0.%d.%d", r.IntN(8), r.IntN(256))
			if r.IntN(9) == 0 {
				client = fmt.Sprintf("198.51.100.%d", r.IntN(1+int(seed)%4))
			}
			e := accesslog.Entry{Time: now, Client: client}
			if err := errors.Join(o.Add(&e), sweep.Add(&e)); err != nil {
				t.Fatal(err)
			}
		}
		o.Finish(nil)
		want := uint64(0)
		report, err := sweep.Report()
		if err != nil {
			t.Fatal(err)
		}
		if c := report.Curves[0]; c.Best && c.Timeline != nil {
			for _, cell := range c.Cells {
				if cell.Threshold == c.Recommended && cell.Refused > 0 {
					want = c.Recommended
				}
			}
		}
		_, got := o.Limits()
		if got > 0 {
			suggested++
		}
		if got != want {
			t.Errorf("seed %d: the overview suggests %d, the sweep %d", seed, got, want)
		}
	}
	if suggested == 0 {
		t.Error("the overview never suggests a rule")
	}
}

// An overview names its clients as the log does, however long their names are.
func TestOverviewNamesClients(t *testing.T) {
	names := []string{"203.0.113.7", "2001:db8::1", "2001:db8:7:9:a:b:c:d", "2001:DB8:7:9:A:B:C:D", "::ffff:203.0.113.7", "fe80::1234:5678%eth0", "a-client-with-a-long-name.example"}
	var o analysis.Overview
	for i, name := range names {
		for range len(names) - i {
			if err := o.Add(&accesslog.Entry{Time: 1e15, Client: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.Finish(nil)
	var got []string
	for _, c := range o.Busiest {
		got = append(got, c.Client)
	}
	if diff := cmp.Diff(names, got); diff != "" || o.Clients != len(names) {
		t.Errorf("%d clients (-want +got):\n%s", o.Clients, diff)
	}
}
