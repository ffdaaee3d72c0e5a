package mix_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The bundled mixes say of themselves who exceeds which limit. Who reads a result takes
// their word for it.
func TestWhoExceedsLimits(t *testing.T) {
	for _, test := range []struct {
		name      string
		threshold int // a minute
		want      map[string]int
	}{
		{"web", 100, map[string]int{"scraper": 4, "edges": 2}},
		{"attack", 50, map[string]int{"just-above": 5, "far-above": 3, "edges": 10, "on-off": 10}},
	} {
		m := load(t, test.name)
		component := map[uint64]string{}
		list := requests(m)
		for _, r := range list {
			component[r.Client] = m.Components()[r.Component].Name
		}
		got := map[string]int{}
		for client, times := range byClient(list) {
			if most(times, time.Minute) > test.threshold {
				got[component[client]]++
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: clients over %d a minute: %s", test.name, test.threshold, diff)
		}
		for _, c := range m.Components() {
			if test.want[c.Name] > 0 && !c.Attack {
				t.Errorf("%s: %s exceeds the limit and is no attack", test.name, c.Name)
			}
		}
	}
}

// The analysis had 400 million requests from 270,000 sources, and so has the mix.
func TestSizeOfTheAnalysis(t *testing.T) {
	m := load(t, "cloudflare")
	var clients uint64
	for _, c := range m.Components() {
		clients += c.Clients
	}
	if clients != 270_000 || m.Requests != 400_000_000 {
		t.Errorf("%d requests from %d sources", m.Requests, clients)
	}
}
