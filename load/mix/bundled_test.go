package mix_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/load/mix"
)

// The bundled mixes document which clients exceed which limit, and readers rely on that. Every component
// appears within the first 10 s.
func TestClientsOverLimits(t *testing.T) {
	type limit struct {
		path      string // path that the limit applies to; empty for all
		threshold int
		period    time.Duration
		want      map[string]int
	}
	early := map[[2]string]int{} // by mix and component, count of clients that exceed a limit within 10 s
	for mixName, limits := range map[string][]limit{
		"web": {
			{"", 100, time.Minute, map[string]int{"scraper": 4, "edges": 2}},
			{"/products", 40, 10 * time.Second, map[string]int{"scraper": 4}},
			{"/search", 20, 4 * time.Second, map[string]int{"edges": 2}},
			{"/login", 5, time.Minute, map[string]int{"guessers": 20}},
		},
		"attack": {
			{"", 50, 4 * time.Second, map[string]int{"just-above": 5, "far-above": 3, "edges": 10, "on-off": 10}},
			{"/login", 5, time.Minute, map[string]int{"guessing": 20}},
		},
	} {
		m := load(t, mixName)
		soon := m.Start().Add(10 * time.Second).UnixMicro()
		first := make([]int64, len(m.Components())) // time of the first request
		component := map[uint64]string{}            // by client
		times := make([]map[uint64][]int64, len(limits))
		for i := range times {
			times[i] = map[uint64][]int64{}
		}
		s := m.Source()
		for r := (mix.Request{}); s.Next(&r); {
			if first[r.Component] == 0 {
				first[r.Component] = r.Time
			}
			component[r.Client] = m.Components()[r.Component].Name
			for i := range limits {
				if strings.HasPrefix(r.Path, limits[i].path) {
					times[i][r.Client] = append(times[i][r.Client], r.Time)
				}
			}
		}
		for i, l := range limits {
			got := map[string]int{}
			for client, times := range times[i] {
				if most(times, l.period) > l.threshold {
					got[component[client]]++
				}
				if n, _ := slices.BinarySearch(times, soon); most(times[:n], l.period) > l.threshold {
					early[[2]string{mixName, component[client]}]++
				}
			}
			if diff := cmp.Diff(l.want, got); diff != "" {
				t.Errorf("%s: clients over %d in %v: %s", mixName, l.threshold, l.period, diff)
			}
			for _, c := range m.Components() {
				if l.want[c.Name] > 0 && !c.Attack {
					t.Errorf("%s: %s exceeds the limit and is not an attack", mixName, c.Name)
				}
			}
		}
		for i, c := range m.Components() {
			if first[i] == 0 || first[i] >= soon {
				t.Errorf("%s: %s sends nothing within 10 s", mixName, c.Name)
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

// The published analysis had 400 million requests from 270,000 sources, and so does the mix.
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
