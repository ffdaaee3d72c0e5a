package analysis_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
)

// If the log marks an attack, the report shows how much of it is refused, and how much of the rest. A client
// may be on both sides.
func TestTruth(t *testing.T) {
	mark := func(entries []accesslog.Entry) []accesslog.Entry {
		for i := range entries {
			entries[i].Attack = true
		}
		return entries
	}
	entries := slices.Concat(
		mark(requestsOf("7", 15, 0, 10*time.Millisecond)), // the 11th exceeds the limit and passes
		requestsOf("7", 3, time.Second, time.Millisecond), // a neighbor behind the same address
		requestsOf("8", 12, 2*time.Second, time.Millisecond),
		requestsOf("9", 5, 3*time.Second, time.Millisecond),
		mark(requestsOf("10", 6, 4*time.Second, time.Millisecond)),
		requestsOf("11", 2, 5*time.Second, time.Millisecond),
	)
	for i := range entries { // the deny list has client 11
		if entries[i].Client == "11" {
			entries[i].Addr = netip.MustParseAddr("203.0.113.7")
		}
	}
	rules := parse(t, `deny: [203.0.113.0/24]
rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}]}
  - {id: tried, match: {paths: [/10]}, characteristics: [ip], limits: [{threshold: 3, period: 1m}], action: log}
`)
	for _, o := range []analysis.PoPOptions{{}, {Nodes: 2, Shards: 2}} {
		got := enforce(t, analysis.EnforcementOptions{Rules: rules, PoP: o}, entries)
		for _, test := range []struct {
			name      string
			got, want *analysis.Truth
		}{
			{"everything", got.Truth, &analysis.Truth{
				Attack:     analysis.TruthPart{Requests: 21, Refused: 4, RefusedPct: 100 * 4. / 21, Clients: 1},
				Legitimate: analysis.TruthPart{Requests: 22, Refused: 6, RefusedPct: 100 * 6. / 22, Clients: 3},
			}},
			{"all", got.Rules[0].Truth, &analysis.Truth{
				Attack:     analysis.TruthPart{Requests: 21, Refused: 4, RefusedPct: 100 * 4. / 21, Clients: 1},
				Legitimate: analysis.TruthPart{Requests: 22, Refused: 4, RefusedPct: 100 * 4. / 22, Clients: 2},
			}},
			{"tried", got.Rules[1].Truth, &analysis.Truth{
				Attack:     analysis.TruthPart{Requests: 21, Refused: 2, RefusedPct: 100 * 2. / 21, Clients: 1},
				Legitimate: analysis.TruthPart{Requests: 22},
			}},
		} {
			if diff := cmp.Diff(test.want, test.got); diff != "" {
				t.Errorf("%d nodes, %s (-want +got):\n%s", max(o.Nodes, 1), test.name, diff)
			}
		}
		var text strings.Builder
		if err := got.Document().WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"attack           4  refused, 19% of 21 requests, from 1 client",
			"legitimate       6  refused, 27.3% of 22 requests, from 3 clients",
			"attack           2  would refuse, 9.52% of 21 requests, from 1 client",
		} {
			if !strings.Contains(text.String(), line) {
				t.Errorf("the report lacks %q:\n%s", line, text.String())
			}
		}
	}
	for i := range entries {
		entries[i].Attack = false
	}
	if got := enforce(t, analysis.EnforcementOptions{Rules: rules}, entries); got.Truth != nil || got.Rules[0].Truth != nil {
		t.Errorf("without marks the report has %+v, %+v", got.Truth, got.Rules[0].Truth)
	}
}
