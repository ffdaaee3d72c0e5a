package mix_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/load/mix"
)

// The bundled mixes document which clients exceed which limit, and readers rely on that. Every component
// appears within the first 10 s.
func TestClientsOverLimits(t *testing.T) {
	all := map[string][]mix.Request{}
	early := map[[2]string]int{} // by mix and component, clients that exceed a limit within 10 s
	for _, test := range []struct {
		name      string
		path      string // path that the limit applies to; empty for all
		threshold int
		period    time.Duration
		want      map[string]int
	}{
		{"web", "", 100, time.Minute, map[string]int{"scraper": 4, "edges": 2}},
		{"web", "/products", 40, 10 * time.Second, map[string]int{"scraper": 4}},
		{"web", "/search", 20, 4 * time.Second, map[string]int{"edges": 2}},
		{"web", "/login", 5, time.Minute, map[string]int{"guessers": 20}},
		{"attack", "", 50, 4 * time.Second, map[string]int{"just-above": 5, "far-above": 3, "edges": 10, "on-off": 10}},
		{"attack", "/login", 5, time.Minute, map[string]int{"guessing": 20}},
	} {
		m := load(t, test.name)
		if all[test.name] == nil {
			all[test.name] = requests(m)
		}
		component, soon := map[uint64]string{}, map[string]bool{}
		var list, first []mix.Request
		for _, r := range all[test.name] {
			component[r.Client] = m.Components()[r.Component].Name
			early := r.Time < m.Start().Add(10*time.Second).UnixMicro()
			if early {
				soon[component[r.Client]] = true
			}
			if !strings.HasPrefix(r.Path, test.path) {
				continue
			}
			if list = append(list, r); early {
				first = append(first, r)
			}
		}
		over := func(list []mix.Request) map[string]int {
			got := map[string]int{}
			for client, times := range byClient(list) {
				if most(times, test.period) > test.threshold {
					got[component[client]]++
				}
			}
			return got
		}
		if diff := cmp.Diff(test.want, over(list)); diff != "" {
			t.Errorf("%s: clients over %d in %v: %s", test.name, test.threshold, test.period, diff)
		}
		for name, clients := range over(first) {
			early[[2]string{test.name, name}] += clients
		}
		for _, c := range m.Components() {
			if test.want[c.Name] > 0 && !c.Attack {
				t.Errorf("%s: %s exceeds the limit and is not an attack", test.name, c.Name)
			}
			if !soon[c.Name] {
				t.Errorf("%s: %s sends nothing within 10 s", test.name, c.Name)
			}
		}
	}
	for name, want := range map[string][]string{"web": {"scraper", "edges", "guessers"}, "attack": {"just-above", "far-above", "edges", "on-off", "guessing"}} {
		for _, c := range want {
			if early[[2]string{name, c}] == 0 {
				t.Errorf("%s: no client of %s exceeds a limit within 10 s", name, c)
			}
		}
	}
}

// The published analysis had 400 million requests from 270,000 sources, and so has the mix.
func TestCloudflareMixSize(t *testing.T) {
	m := load(t, "cloudflare")
	var clients uint64
	for _, c := range m.Components() {
		clients += c.Clients
	}
	if clients != 270_000 || m.Requests != 400_000_000 {
		t.Errorf("%d requests from %d sources", m.Requests, clients)
	}
}
