package limit_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// loadPlans loads a rule with overrides from files in dir.
func loadPlans(t *testing.T, dir, text, plans string) *rule.Set {
	t.Helper()
	for name, text := range map[string]string{"rules.yaml": text, "plans.csv": plans} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Each key has the thresholds of its file, on each node, in what clients see, and for requests that are counted
// immediately or by the response. A reload changes them and keeps the counts.
func TestOverrides(t *testing.T) {
	for _, count := range []string{"", ", count: {cost: 1, statuses: [200]}"} {
		t.Run(count, func(t *testing.T) {
			dir := t.TempDir()
			text := `rules: [{id: api, characteristics: ["header:x-api-key"], limits: [{threshold: 5, period: 1h}, {threshold: 50, period: 24h}], overrides: plans.csv` + count + "}]"
			before := loadPlans(t, dir, text, "header:x-api-key,1h,1d\ngold,20,\nfree,2,\n")
			after := loadPlans(t, dir, text, "header:x-api-key,1h,1d\ngold,30,\n")
			bubble.Test(t, func(t *testing.T) {
				p := startPop(t, 2, 2, text[:len("rules: [{id: api, characteristics: [\"header:x-api-key\"], limits: [{threshold: 5, period: 1h}, {threshold: 50, period: 24h}]")]+count+"}]")
				defer p.stop()
				load := func(set *rule.Set) {
					for _, l := range p.limiters {
						l.SetRules(set)
					}
				}
				passes := func(key string) (passed int) {
					for i := range 60 {
						l := p.limiters[i%2]
						req := headers(key)
						req.Addr = netip.MustParseAddr("192.0.2.1")
						d := l.Decide(&req, time.Now())
						if !d.Verdict.Refused() {
							l.Answered(&d, 200, nil, time.Now())
							passed++
						} else if d.Rule.ID != "api" || d.Rule.Base().Index != 0 {
							t.Errorf("refused by %+v", d.Rule)
						}
						time.Sleep(20 * time.Millisecond)
					}
					return passed
				}
				told := func(key string) string {
					req := headers(key)
					d := p.limiters[0].Look(&req, time.Now())
					text := d.Verdict.String()
					for _, q := range p.limiters[0].Quotas(nil, &d, time.Now()) {
						text += fmt.Sprintf(" %d of %d", q.Remaining, q.Limit.Threshold)
					}
					return text
				}
				load(before)
				for key, want := range map[string]int{"gold": 21, "free": 3, "other": 6} {
					if got := passes(key); got != want {
						t.Errorf("%d requests of %s pass, want %d", got, key, want)
					}
				}
				for key, want := range map[string]string{"gold": "blocked 0 of 20 0 of 50", "free": "blocked 0 of 2 0 of 50"} {
					if got := told(key); got != want {
						t.Errorf("%s gets %s, want %s", key, got, want)
					}
				}
				load(after)
				if got := told("gold"); got != "passed 9 of 30 29 of 50" {
					t.Errorf("a key whose threshold was raised gets %s", got)
				}
				time.Sleep(3 * time.Hour) // the mitigations end
				passes("gold")
				if got := told("gold"); got != "blocked 0 of 30 0 of 50" {
					t.Errorf("after the reload, gold gets %s", got)
				}
			})
		})
	}
}

// goldPlan returns a rule with a limit of 5, and of 20 for the key gold.
func goldPlan(t *testing.T) *rule.Set {
	text := `rules: [{id: api, characteristics: ["header:x-api-key"], limits: [{threshold: 5, period: 1h}], overrides: plans.csv}]`
	return loadPlans(t, t.TempDir(), text, "header:x-api-key,1h\ngold,20\n")
}

// A request with an overridden key and another one gets the smaller quota.
func TestQuotasOfOverrides(t *testing.T) {
	set := goldPlan(t)
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: []")
		defer p.stop()
		l := p.limiters[0]
		l.SetRules(set)
		var d limit.Decision
		for range 2 {
			d = p.ask(headers("gold", "other"), 200)
		}
		q := l.Quotas(nil, &d, time.Now())
		if len(q) != 1 || q[0].Remaining != 3 || q[0].Limit.Threshold != 5 {
			t.Errorf("quotas %+v, want 3 of 5", q)
		}
	})
}

// Requests with an overridden key are counted in the metric of their rule.
func TestMetricOfOverrides(t *testing.T) {
	set := goldPlan(t)
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, "rules: []")
		defer p.stop()
		p.limiters[0].SetRules(set)
		for _, key := range []string{"gold", "other"} {
			p.ask(headers(key), 200)
		}
		time.Sleep(time.Second)
		if got := value(t, p.registries[0], "edge_requests_counted_total", "api"); got != 2 {
			t.Errorf("%v requests are counted, want 2", got)
		}
	})
}
