package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// parse returns the rules of a file.
func parse(tb testing.TB, text string) *rule.Set {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// withIDs returns a file of rules with these IDs, each for its own host.
func withIDs(ids ...string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, id := range ids {
		fmt.Fprintf(&b, "  - {id: %s, match: {hosts: [%s.example]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n", id, id)
	}
	return b.String()
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	table := mitigation.New(mitigation.Options{})
	l, err := limit.New(limit.Options{
		Rules: parse(t, withIDs("a", "b")+"allow: [10.0.0.9]\ndeny: [10.0.0.8]\n"), Table: table, Queue: 16, Registerer: reg,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(client uint32, host string) {
		req := request(client)
		req.Host = host
		l.Decide(&req, time.Now())
	}
	decide(9, "a.example")
	decide(8, "a.example")
	decide(1, "nobody.example")
	for client := range uint32(50) { // nothing takes them out of the queue
		decide(100+client, "b.example")
	}
	want := `
# HELP edge_requests_total Requests by verdict and by the rule that decided; the rule is empty if none did.
# TYPE edge_requests_total counter
edge_requests_total{rule="",verdict="allowed"} 1
edge_requests_total{rule="",verdict="denied"} 1
edge_requests_total{rule="",verdict="malformed"} 0
edge_requests_total{rule="",verdict="own"} 0
edge_requests_total{rule="",verdict="passed"} 51
edge_requests_total{rule="a",verdict="blocked"} 0
edge_requests_total{rule="a",verdict="closed"} 0
edge_requests_total{rule="a",verdict="logged"} 0
edge_requests_total{rule="a",verdict="shadow_banned"} 0
edge_requests_total{rule="a",verdict="unavailable"} 0
edge_requests_total{rule="b",verdict="blocked"} 0
edge_requests_total{rule="b",verdict="closed"} 0
edge_requests_total{rule="b",verdict="logged"} 0
edge_requests_total{rule="b",verdict="shadow_banned"} 0
edge_requests_total{rule="b",verdict="unavailable"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edge_requests_total"); err != nil {
		t.Error(err)
	}
	queued, dropped := value(t, reg, "edge_queue_depth", ""), value(t, reg, "edge_increments_dropped_total", "queue_full")
	if queued == 0 || dropped == 0 || queued+dropped != 50 {
		t.Errorf("of 50 requests %v are queued and %v dropped", queued, dropped)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}

	// The series of a removed rule are removed.
	l.SetRules(parse(t, withIDs("b", "c")))
	for id, want := range map[string]int{"a": 0, "b": 5, "c": 5} {
		if got := series(t, reg, "edge_requests_total", id); got != want {
			t.Errorf("rule %s has %d series of requests, want %d", id, got, want)
		}
		if got := series(t, reg, "edge_mitigations_started_total", id); got != want/5 {
			t.Errorf("rule %s has %d series of mitigations, want %d", id, got, want/5)
		}
	}
}

// The loop may get a new set before the limiter: then no rule gets the counts of another. A removed rule has decided
// nothing, and has no series of bystanders.
func TestMetricsOfChangedRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, withIDs("a", "b")+"  - {id: shared, characteristics: [host], limits: [{threshold: 5, period: 1m}]}\n")
		defer p.stop()
		l, shared := p.limiters[0], p.limiters[0].Rules().Rule("shared")
		without := parse(t, withIDs("b"))
		l.Loop.SetRules(without)
		req := request(1)
		req.Host = "b.example"
		l.Decide(&req, time.Now())
		time.Sleep(time.Second)
		if n := value(t, p.registries[0], "edge_requests_counted_total", ""); n != 0 {
			t.Errorf("%v requests are counted for rules of another set", n)
		}
		if n := series(t, p.registries[0], "edge_bystander_requests_total", "shared"); n != 1 {
			t.Errorf("a rule with a shared key has %d series of bystanders, want 1", n)
		}
		l.SetRules(without)
		if n := series(t, p.registries[0], "edge_bystander_requests_total", "shared"); n != 0 || len(l.Decided(shared)) != 0 {
			t.Errorf("a removed rule has %d series of bystanders and has decided %v", n, l.Decided(shared))
		}
	})
}

// A million rules must not make a million series.
func TestManyRulesShareSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	var ids []string
	for i := range 3000 {
		ids = append(ids, fmt.Sprint("r", i))
	}
	table := mitigation.New(mitigation.Options{})
	if _, err := limit.New(limit.Options{Rules: parse(t, withIDs(ids...)), Table: table, Registerer: reg}, nil); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(collector{reg}, "edge_requests_total"); n != 5+5*1001 {
		t.Errorf("%d series of requests, want those of 1000 rules, of all others together and of no rule", n)
	}
}

// collector collects what a registry gathers.
type collector struct{ *prometheus.Registry }

// value returns the sum of a metric's series that have a label with this value; for a histogram,
// the number of observations.
func value(tb testing.TB, g prometheus.Gatherer, name, label string) (sum float64) {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := label == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetValue() == label
			}
			if f.GetName() == name && matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// series returns how many series of a metric belong to a rule.
func series(tb testing.TB, g prometheus.Gatherer, name, id string) (n int) {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "rule" && l.GetValue() == id {
					n++
				}
			}
		}
	}
	return n
}
