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
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/trace"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// newYear is the start of a window for each period in these tests.
var newYear = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func parse(tb testing.TB, rules string) *rule.Set {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// enforce returns the results of o for entries, whose times are relative to newYear.
func enforce(t *testing.T, o analysis.EnforcementOptions, entries []accesslog.Entry) *analysis.Enforcement {
	t.Helper()
	f, err := analysis.NewEnforcer(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		e.Time += newYear.UnixMicro()
		f.Add(&e)
	}
	return f.Report()
}

// requestsOf returns n requests of a client, starting at a given time, at a fixed interval.
func requestsOf(client string, n int, at, every time.Duration) (entries []accesslog.Entry) {
	for range n {
		entries = append(entries, accesslog.Entry{
			Time: at.Microseconds(), Client: client, Method: "GET", Host: "example.com", Path: "/" + client, Status: 200,
		})
		at += every
	}
	return entries
}

// Nodes refuse malformed requests whatever the rules, so these are not among those that the rules refuse.
func TestMalformedRequests(t *testing.T) {
	entries := requestsOf("7", 3, 0, time.Second)
	entries[1].Path = "/" + strings.Repeat("a", rule.MaxPath)
	rules := parse(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]")
	for _, nodes := range []int{1, 3} {
		got := enforce(t, analysis.EnforcementOptions{Rules: rules, PoP: analysis.PoPOptions{Nodes: nodes}}, entries)
		if got.Requests != 3 || got.Refused != 0 || got.WronglyRefused.Requests != 0 {
			t.Errorf("with %d nodes, %d of %d requests are refused, %d wrongly, want 0 of 3", nodes, got.Refused, got.Requests,
				got.WronglyRefused.Requests)
		}
	}
	// Rules count them, and may log them.
	entries = requestsOf("7", 6, 0, time.Second)
	for i := range entries {
		entries[i].Path = "/" + strings.Repeat("a", rule.MaxPath)
	}
	rules = parse(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 2, period: 1m}], action: log}]")
	for _, nodes := range []int{1, 3} {
		got := enforce(t, analysis.EnforcementOptions{Rules: rules, PoP: analysis.PoPOptions{Nodes: nodes}}, entries)
		if got.Logged != 3 || got.Rules[0].Counted != 3 || got.WronglyAllowed.Requests != 0 {
			t.Errorf("with %d nodes, %d requests are logged, %d counted, %d wrongly allowed, want 3, 3, 0", nodes, got.Logged,
				got.Rules[0].Counted, got.WronglyAllowed.Requests)
		}
	}
}

// A report shows which clients are refused, when that began, and for how long.
func TestEnforcement(t *testing.T) {
	entries := requestsOf("7", 15, 0, time.Second) // the 11th exceeds the limit, for 55 s
	entries = append(entries, requestsOf("8", 10, 20*time.Second, time.Millisecond)...)
	entries = append(entries, requestsOf("7", 1, 30*time.Second, 0)...)
	got := enforce(t, analysis.EnforcementOptions{
		Rules: parse(t, `rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 20s}
  - {id: eight, match: {paths: [/8]}, characteristics: [path], limits: [{threshold: 4, period: 10s}], action: log}
`),
		ReportOptions: analysis.ReportOptions{Name: func(client string) string { return "client " + client }},
	}, entries)
	first, logged := newYear.Add(11*time.Second), newYear.Add(20*time.Second+5*time.Millisecond)
	got.Timeline.Points = got.Timeline.Points[:1]
	for i := range got.Rules {
		if r := &got.Rules[i]; !strings.Contains(r.Means, "are counted for each") {
			t.Errorf("rule %s means %q", r.Rule, r.Means)
		} else {
			r.Means = ""
		}
	}
	want := &analysis.Enforcement{
		Requests: 26, Clients: 2, From: newYear, To: newYear.Add(30 * time.Second),
		PoP:     analysis.PoPReport{Nodes: 1, Shards: 1, Spread: "connection"},
		Refused: 5, Logged: 5,
		Rules: []analysis.RuleEnforcement{{
			Rule: "all", Action: "block", Matched: 26, Counted: 21, Refused: 5, RefusedPct: 100 * 5. / 26,
			Clients: 1, FirstRefusal: &first,
			TopClients: []analysis.TopClient{{Client: "client 7", Requests: 5, First: first}},
			Shares:     []analysis.Share{{Clients: 1, Refused: 5}},
			TopPaths:   []analysis.TopPath{{Path: "/7", Requests: 5}},
			// 11 in this window: 11×0.909+0 = 10 in the next one, 65.454546 s after newYear.
			Mitigations:  1,
			Mitigated:    analysis.MitigationDuration{TotalS: 55.454546, MedianS: 55.455, MaxS: 55.454546},
			ExactRefused: 5,
		}, {
			Rule: "eight", Action: "log", Matched: 10, Counted: 5, Refused: 5, RefusedPct: 50,
			Clients: 1, FirstRefusal: &logged,
			TopClients:   []analysis.TopClient{{Client: "client 8", Requests: 5, First: logged}},
			Shares:       []analysis.Share{{Clients: 1, Refused: 5}},
			TopPaths:     []analysis.TopPath{{Path: "/8", Requests: 5}},
			Mitigations:  1,
			Mitigated:    analysis.MitigationDuration{TotalS: 11.996, MedianS: 11.996, MaxS: 11.996},
			ExactRefused: 5,
		}},
		Timeline: figure.Timeline{From: newYear, StepS: 1, PeakS: 1, Points: []figure.Point{{Requests: 1, Peak: 1}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

const perMinute = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 1m}]"

// A rule that fails closed refuses requests exactly while its shard is lost. The failure is the cause, because
// exact counts are never lost.
func TestRulesThatFailClosed(t *testing.T) {
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 1m}], on_failure: closed}]")
	entries := requestsOf("1", 20, 0, time.Second)
	got := enforce(t, analysis.EnforcementOptions{Rules: rules}, entries)
	if got.Refused != 0 || got.Rules[0].ExactRefused != 0 || got.WronglyAllowed.Requests != 0 {
		t.Errorf("without a loss: %d refused, by exact counts %d, wrongly allowed %+v", got.Refused, got.Rules[0].ExactRefused, got.WronglyAllowed)
	}
	got = enforce(t, analysis.EnforcementOptions{Rules: rules, PoP: analysis.PoPOptions{Losses: []analysis.Loss{{At: 10 * time.Second, For: 5 * time.Second}}}}, entries)
	want := analysis.Disagreement{Requests: 5, Clients: 1, ByCause: analysis.ByCause{Failure: 5}}
	if diff := cmp.Diff(want, got.WronglyRefused); diff != "" || got.Refused != 5 || got.WronglyAllowed.Requests != 0 {
		t.Errorf("lost for 5 s: %d refused, wrongly allowed %+v, wrongly refused (-want +got):\n%s", got.Refused, got.WronglyAllowed, diff)
	}
}

// The cause of each wrong decision is the one without which it would have been right.
func TestCausesOfWrongDecisions(t *testing.T) {
	late := analysis.PoPOptions{Nodes: 3, Shards: 2, Spread: analysis.ByRequest, Lag: 500 * time.Millisecond}
	lossy := late
	lossy.Losses = []analysis.Loss{{Shard: 0, At: 5 * time.Second, For: 30 * time.Second}, {Shard: 1, At: 5 * time.Second, For: 30 * time.Second}}
	slow := append(requestsOf("1", 1, 0, 0), requestsOf("2", 20, 4*time.Second, 2*time.Second)...)
	for _, tt := range []struct {
		name             string
		pop              analysis.PoPOptions
		entries          []accesslog.Entry
		refused, allowed analysis.Disagreement
	}{
		{"a steady client is estimated correctly", late, requestsOf("1", 100, 0, 10*time.Second), analysis.Disagreement{}, analysis.Disagreement{}},
		{
			"8 requests at the beginning of a window weigh 4 in the middle of the next one",
			analysis.PoPOptions{}, append(requestsOf("1", 8, 0, time.Millisecond), requestsOf("1", 8, 90*time.Second, time.Millisecond)...),
			// 8×0.5+7 > 10: the 8th is refused.
			analysis.Disagreement{Requests: 1, Clients: 1, ByCause: analysis.ByCause{Estimate: 1}}, analysis.Disagreement{},
		},
		{
			"8 requests at the end of a window weigh 4 in the middle of the next one",
			analysis.PoPOptions{}, append(requestsOf("1", 8, 59*time.Second, time.Millisecond), requestsOf("1", 8, 90*time.Second, time.Millisecond)...),
			// The exact log mitigates with the 3rd, the estimate with the 7th.
			analysis.Disagreement{}, analysis.Disagreement{Requests: 4, Clients: 1, ByCause: analysis.ByCause{Estimate: 4}},
		},
		{
			"a burst passes each of three nodes before they know of each other",
			late, requestsOf("1", 100, 0, time.Millisecond),
			analysis.Disagreement{}, analysis.Disagreement{Requests: 22, Clients: 1, ByCause: analysis.ByCause{Lag: 22}},
		},
		{
			// By exact counts the 12th is refused, at 26 s. The nodes send their counts at 35 s.
			"all shards are lost, and each node counts by itself until they are back",
			lossy, slow,
			analysis.Disagreement{}, analysis.Disagreement{Requests: 5, Clients: 1, ByCause: analysis.ByCause{Failure: 5}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := enforce(t, analysis.EnforcementOptions{Rules: parse(t, perMinute), PoP: tt.pop}, tt.entries)
			if diff := cmp.Diff([]analysis.Disagreement{tt.refused, tt.allowed}, []analysis.Disagreement{got.WronglyRefused, got.WronglyAllowed}); diff != "" {
				t.Errorf("wrongly refused and wrongly allowed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got.WronglyAllowed, got.Rules[0].WronglyAllowed); diff != "" {
				t.Errorf("wrongly allowed in total, and by the only rule (-all +rule):\n%s", diff)
			}
		})
	}
}

// A request with several values counts as one request, whichever value it is refused for.
func TestEnforcementOfSeveralValues(t *testing.T) {
	rules, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: user, characteristics: [query:user], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1m}]"))
	if err != nil {
		t.Fatal(err)
	}
	entries := requestsOf("192.0.2.1", 20, 0, time.Second)
	for i := range entries {
		entries[i].Query = fmt.Sprintf("user=victim&user=random%d&user=more%d", i, i)
	}
	r := enforce(t, analysis.EnforcementOptions{Rules: rules}, entries).Rules[0]
	if r.Matched != 20 || r.Counted != 6 || r.Refused != 14 || r.ExactRefused != 14 {
		t.Errorf("%d requests matched, %d counted, %d refused, %d by exact counts; want 20, 6, 14, 14", r.Matched, r.Counted, r.Refused, r.ExactRefused)
	}
}

// Fewer decisions about real traffic are wrong with sub-windows. The requests of a client in a second are spread
// over it.
func TestSubWindowsUnderEnforcement(t *testing.T) {
	arrivals := trace.Arrivals(t, "xzymo")
	in, seen := map[accesslog.Arrival]int64{}, map[accesslog.Arrival]int64{}
	for _, a := range arrivals {
		in[a]++
	}
	var entries []accesslog.Entry
	for _, a := range arrivals {
		at := a.Time + (2*seen[a]+1)*500_000/in[a] - newYear.UnixMicro()
		seen[a]++
		entries = append(entries, accesslog.Entry{Time: at, Client: strings.TrimRight(string(a.Client[:]), "\x00"), Path: "/"})
	}
	slices.SortStableFunc(entries, func(a, b accesslog.Entry) int { return int(a.Time - b.Time) })
	wrong := map[string]uint64{}
	for _, setting := range []string{"1", "auto"} {
		rules := parse(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 20, period: 1m, sub_windows: "+setting+"}]}]")
		got := enforce(t, analysis.EnforcementOptions{Rules: rules}, entries)
		wrong[setting] = got.WronglyRefused.Requests + got.WronglyAllowed.Requests
	}
	if wrong["1"] == 0 || wrong["auto"] >= wrong["1"] {
		t.Errorf("wrong decisions: %d with sub-windows, %d without", wrong["auto"], wrong["1"])
	}
}
