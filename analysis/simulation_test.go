package analysis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// decide returns the verdicts of a simulation on entries, whose times are relative to newYear.
func decide(t *testing.T, o analysis.PoPOptions, rules *rule.Set, entries []accesslog.Entry) (verdicts []limit.Verdict) {
	t.Helper()
	s, err := analysis.NewSimulation(o, rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		e.Time += newYear.UnixMicro()
		d := s.Decide(&e)
		verdicts = append(verdicts, d.Verdict)
	}
	return verdicts
}

// passes returns the number of requests that pass.
func passes(verdicts []limit.Verdict) (n int) {
	for _, v := range verdicts {
		if !v.Refused() {
			n++
		}
	}
	return n
}

// Nodes without lag decide like one node, whichever shards hold the counts.
func TestNodesWithoutLag(t *testing.T) {
	rules, entries := parse(t, manyRules), bursts(7, 3000)
	want := decide(t, analysis.PoPOptions{}, rules, entries)
	if n := passes(want); n < 500 || n > 2500 {
		t.Fatalf("%d of 3000 requests pass, so the test is too weak", n)
	}
	for name, o := range map[string]analysis.PoPOptions{
		"4 nodes, by connection": {Nodes: 4, Shards: 1},
		"4 nodes, by request":    {Nodes: 4, Shards: 3, Spread: analysis.ByRequest},
	} {
		if diff := cmp.Diff(want, decide(t, o, rules, entries)); diff != "" {
			t.Errorf("%s (-one +all):\n%s", name, diff)
		}
	}
}

// The same options give the same verdicts, and the seed determines the nodes of requests.
func TestSimulationIsDeterministic(t *testing.T) {
	rules, entries := parse(t, manyRules), bursts(8, 1500)
	o := analysis.PoPOptions{
		Nodes: 3, Shards: 3, Spread: analysis.ByRequest, Lag: 300 * time.Millisecond, Skew: 2 * time.Second,
		Losses: []analysis.Loss{{Shard: 1, At: 30 * time.Second, For: time.Minute}, {Shard: 2, At: 40 * time.Second}},
	}.WithWaiting(800)
	first := decide(t, o, rules, entries)
	if diff := cmp.Diff(first, decide(t, o, rules, entries)); diff != "" {
		t.Errorf("two equal runs (-first +second):\n%s", diff)
	}
	if slices.Equal(first, decide(t, o.WithSeed(1), rules, entries)) {
		t.Error("another seed changes nothing")
	}
}

// A client uses up the threshold once at each node, however late their counts are: each node refuses it by its
// own counts.
func TestPassedRequestsWithLag(t *testing.T) {
	rules := parse(t, perMinute)
	flood := requestsOf("1", 400, 0, 10*time.Millisecond) // in 4 s
	for _, tt := range []struct {
		name      string
		o         analysis.PoPOptions
		low, high int
	}{
		{"no lag", analysis.PoPOptions{Nodes: 2}, 11, 11},
		{"counts are sent after a second", analysis.PoPOptions{Lag: time.Second}, 11, 11},
		{"counts are sent after a second by two nodes", analysis.PoPOptions{Nodes: 2, Spread: analysis.ByRequest, Lag: time.Second}, 22, 22},
		{"counts are sent after the end", analysis.PoPOptions{Nodes: 2, Spread: analysis.ByRequest, Lag: time.Minute}, 22, 22},
	} {
		if n := passes(decide(t, tt.o, rules, flood)); n < tt.low || n > tt.high {
			t.Errorf("%s: %d requests pass, want %d to %d", tt.name, n, tt.low, tt.high)
		}
	}
}

// A node with many pending counts does not wait for the lag, and drops none.
func TestManyPendingCounts(t *testing.T) {
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1h}]}]")
	entries := requestsOf("0", 11, 0, 0)
	for i := range 900 {
		entries = append(entries, requestsOf(fmt.Sprint(i+1), 1, time.Second, 0)...)
	}
	entries = append(entries, requestsOf("0", 1, 2*time.Second, 0)...)
	verdicts := decide(t, analysis.PoPOptions{Lag: time.Hour}.WithWaiting(800), rules, entries)
	if last := verdicts[len(verdicts)-1]; last != limit.Blocked || passes(verdicts) != len(verdicts)-1 {
		t.Errorf("the last request is %v and %d of %d pass, want all but the last", last, passes(verdicts), len(verdicts))
	}
}

// Nodes with different clocks count the same moment in different windows: each knows half of the requests.
func TestPassedRequestsWithSkew(t *testing.T) {
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 1m}]")
	entries := requestsOf("1", 30, 9*time.Second, 10*time.Millisecond)
	o := analysis.PoPOptions{Nodes: 2, Spread: analysis.ByRequest}
	together := passes(decide(t, o, rules, entries))
	o.Skew = 4 * time.Second // one clock is at 7 s, the other at 11 s
	apart := passes(decide(t, o, rules, entries))
	if together != 11 || apart <= together || apart > 22 {
		t.Errorf("%d requests pass with equal clocks, want 11; %d with skewed clocks, want 12 to 22", together, apart)
	}
}

// A lost shard loses its counts, and a client uses up the threshold once more. Known mitigations stay.
func TestLosses(t *testing.T) {
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1h}]}]")
	for _, tt := range []struct {
		name    string
		o       analysis.PoPOptions
		entries []accesslog.Entry
		want    int
	}{
		{"nothing is lost", analysis.PoPOptions{}, requestsOf("1", 30, 0, time.Second), 11},
		{
			"one node keeps the counts that it has read", analysis.PoPOptions{Losses: []analysis.Loss{{At: 5 * time.Second}}},
			requestsOf("1", 30, 0, time.Second), 11,
		},
		{
			"one of two shards is lost, and later counts go to the other",
			analysis.PoPOptions{Shards: 2, Losses: []analysis.Loss{{Shard: 0, At: 5 * time.Second}, {Shard: 1, At: 25 * time.Second}}},
			requestsOf("1", 30, 0, time.Second), 11,
		},
		{
			"a mitigated client stays mitigated", analysis.PoPOptions{Losses: []analysis.Loss{{At: 20 * time.Second, For: time.Second}}},
			requestsOf("1", 30, 0, time.Second), 11,
		},
	} {
		if n := passes(decide(t, tt.o, rules, tt.entries)); n != tt.want {
			t.Errorf("%s: %d requests pass, want %d", tt.name, n, tt.want)
		}
	}

	// A node that does not know the client counts from zero, once.
	seen := map[int]bool{}
	entries := append(requestsOf("1", 10, 0, time.Second), requestsOf("1", 50, 2*time.Minute, time.Second)...)
	for seed := range uint64(8) {
		o := analysis.PoPOptions{Nodes: 2, Losses: []analysis.Loss{{At: 30 * time.Second, For: time.Second}}}
		seen[passes(decide(t, o.WithSeed(seed), rules, entries))] = true
	}
	if diff := cmp.Diff(map[int]bool{11: true, 21: true}, seen); diff != "" {
		t.Errorf("requests that pass if the next connection is to the same node, or to the other (-want +got):\n%s", diff)
	}

	closed := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 1h}], on_failure: closed}]")
	o := analysis.PoPOptions{Losses: []analysis.Loss{{At: 10 * time.Second, For: 5 * time.Second}}}
	verdicts := decide(t, o, closed, requestsOf("1", 20, 0, time.Second))
	for i, v := range verdicts {
		if want := i >= 10 && i < 15; (v == limit.Unavailable) != want {
			t.Errorf("request %d of a rule that fails closed is %v", i+1, v)
		}
	}
}

func TestBadPoP(t *testing.T) {
	rules := parse(t, perMinute)
	for name, o := range map[string]analysis.PoPOptions{
		"nodes":            {Nodes: -1},
		"many nodes":       {Nodes: 1001},
		"shards":           {Shards: -1},
		"many shards":      {Shards: 1001},
		"lag":              {Lag: -1},
		"skew":             {Skew: -1},
		"spread":           {Spread: 2},
		"no such shard":    {Shards: 2, Losses: []analysis.Loss{{Shard: 2}}},
		"before the start": {Losses: []analysis.Loss{{At: -1}}},
	} {
		if _, err := analysis.NewSimulation(o, rules); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: rules, PoP: o}); err == nil {
			t.Errorf("%s: no error from NewEnforcer", name)
		}
	}
	packed := parse(t, strings.Replace(perMinute, "period", "sub_windows: 6, period", 1))
	for nodes, fits := range map[int]bool{128: true, 129: false} {
		if _, err := analysis.NewSimulation(analysis.PoPOptions{Nodes: nodes}, packed); (err == nil) != fits {
			t.Errorf("%d nodes count in six sub-windows: %v", nodes, err)
		}
	}
	if _, err := analysis.NewEnforcer(analysis.EnforcementOptions{}); err == nil {
		t.Error("no rules: no error")
	}
}

func TestParseLoss(t *testing.T) {
	for text, want := range map[string]analysis.Loss{
		"10m":       {At: 10 * time.Minute},
		"10m+30s":   {At: 10 * time.Minute, For: 30 * time.Second},
		"2@1h+1m5s": {Shard: 1, At: time.Hour, For: 65 * time.Second},
	} {
		got, err := analysis.ParseLoss(text)
		if err != nil || got != want {
			t.Errorf("ParseLoss(%q) = %v, %v, want %v", text, got, err, want)
		}
		if strings.TrimPrefix(got.String(), "1@") != text {
			t.Errorf("ParseLoss(%q).String() = %v", text, got)
		}
		if again, err := analysis.ParseLoss(got.String()); err != nil || again != got {
			t.Errorf("ParseLoss(%q) = %v, %v, want %v", got.String(), again, err, got)
		}
	}
	if l, err := analysis.ParseLoss("1d+1d12h"); err != nil || l != (analysis.Loss{At: 24 * time.Hour, For: 36 * time.Hour}) {
		t.Errorf("ParseLoss(1d+1d12h) = %v, %v", l, err)
	}
	for _, text := range []string{"", "x", "1.5d", "-1s", "10m+", "10m+-1s", "10m+0s", "0@10m", "a@10m", "1@"} {
		if l, err := analysis.ParseLoss(text); err == nil {
			t.Errorf("ParseLoss(%q) = %v, want an error", text, l)
		}
	}
}

func TestParseSpread(t *testing.T) {
	for _, s := range []analysis.Spread{analysis.ByConnection, analysis.ByRequest} {
		if got, err := analysis.ParseSpread(s.String()); err != nil || got != s {
			t.Errorf("ParseSpread(%q) = %v, %v", s, got, err)
		}
	}
	if _, err := analysis.ParseSpread("random"); err == nil {
		t.Error("ParseSpread(random): no error")
	}
}

// Logs do not contain bodies of responses. So under a rule with a cost_json, each request counts as the cost.
func TestCostInBodies(t *testing.T) {
	for _, count := range []string{"cost_json: usage.total, cost: 10", "cost_json: usage.total, cost: 10, reserve: 2", "cost_json: usage.total, reserve: 10"} {
		rules := parse(t, "rules: [{id: r, characteristics: [ip], count: {"+count+"}, limits: [{threshold: 20, period: 1h}]}]")
		for _, o := range []analysis.PoPOptions{{Nodes: 1}, {Nodes: 3, Spread: analysis.ByRequest}, {Nodes: 2, Lag: time.Millisecond}} {
			if got := passes(decide(t, o, rules, requestsOf("7", 30, 0, time.Second))); got != 3 {
				t.Errorf("under {%s}, with %d nodes, %d of 30 requests pass, want 3", count, o.Nodes, got)
			}
		}
	}
}
