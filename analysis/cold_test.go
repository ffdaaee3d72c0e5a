package analysis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/mitigation"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A PoP that defers the requests of cold keys decides, counts and mitigates like one that counts each request
// immediately.
func TestDeferredRequests(t *testing.T) {
	dir := t.TempDir()
	clients := []byte{1, 1, 2, 8, 9}
	for i := range byte(30) {
		clients = append(clients, 20+i)
	}
	rapid.Check(t, func(t *rapid.T) {
		set, err := rulefile.Load(drawRules(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		durations := func(name string, of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(t, name) }
		o := PoPOptions{
			Nodes: rapid.IntRange(1, 4).Draw(t, "nodes"), Shards: rapid.IntRange(1, 3).Draw(t, "shards"),
			Spread:  rapid.SampledFrom([]Spread{ByConnection, ByRequest}).Draw(t, "spread"),
			Lag:     durations("lag", 0, 20*time.Millisecond, 300*time.Millisecond, 2*time.Second, time.Hour),
			Skew:    durations("skew", 0, 0, 700*time.Millisecond, 3*time.Second),
			waiting: rapid.SampledFrom([]int{50, 500}).Draw(t, "waiting"),
		}
		var pops [2]*Simulation
		var mitigated [2][]string
		for i := range pops {
			if pops[i], err = NewSimulation(o, set); err != nil {
				t.Fatal(err)
			}
			pops[i].mitigated = func(r mitigation.Record, now, end int64) {
				by := ""
				if r.Sample != nil {
					by = r.Sample.Rule
				}
				mitigated[i] = append(mitigated[i], fmt.Sprint(r.Node, r.Key, now, end, by))
			}
		}
		pops[1].cold.bounds = nil
		for i, e := range drawEntries(t, 180, clients) {
			got, want := pops[0].Decide(&e), pops[1].Decide(&e)
			if got.Verdict != want.Verdict || got.Rule != want.Rule || !got.Deadline().Equal(want.Deadline()) {
				t.Fatalf("request %d: %v by %v until %v, want %v by %v until %v", i, got.Verdict, got.Rule, got.Deadline(), want.Verdict, want.Rule, want.Deadline())
			}
		}
		for i := range mitigated {
			slices.Sort(mitigated[i]) // keys that are counted together have no fixed order
		}
		if diff := cmp.Diff(mitigated[1], mitigated[0]); diff != "" {
			t.Errorf("mitigations (-immediate +deferred):\n%s", diff)
		}
		for _, r := range set.Rules() {
			if got, want := pops[0].countedBy(r), pops[1].countedBy(r); got != want {
				t.Errorf("rule %s counted %d requests, want %d", r.ID, got, want)
			}
		}
		for n := range pops[0].nodes {
			if pops[0].nodes[n].flush != pops[1].nodes[n].flush {
				t.Errorf("node %d sends at %d, want at %d", n, pops[0].nodes[n].flush, pops[1].nodes[n].flush)
			}
		}
	})
}
