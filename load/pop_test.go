package load_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/rule"
)

const mixed = `
duration: 1h
components:
- name: people
  zipf: {clients: 300, rate: 200/s, exponent: 1, offset: 100}
- name: keepers # IPv6, never more than a request in a second
  steady: {clients: 30, rate: 1/1s, poisson: false}
  addresses: [2001:db8::/48]
- name: attackers
  steady: {clients: 10, rate: 20/1s}
  attack: true
`

// startPoP starts a PoP of three nodes with both kinds of rate limit headers, and returns them as targets.
func startPoP(t *testing.T, rules *rule.Set, trusted ...netip.Prefix) (targets []load.Target) {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(origin.Close)
	local, err := pop.StartLocal(pop.LocalOptions{Node: pop.Options{
		Rules: rules, Origin: origin.URL, NodeHeader: "X-Edge-Node", TrustedProxies: trusted, Headers: proxy.BothHeaders,
		Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, n := range local.Nodes() {
		targets = append(targets, target(t, "http://"+n.Addr("http").String()))
	}
	return targets
}

// runMixed sends the mixed traffic, and returns the results.
func runMixed(t *testing.T, text string, rules *rule.Set, targets []load.Target) (*load.Report, *judge.Score) {
	t.Helper()
	m, err := mix.Parse("mixed.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	log, err := load.Run(t.Context(), load.Options{
		Targets: targets, Source: load.NewMixed(m, 1), Identity: load.Identity{Forwarded: true}, Return: true, Connections: 12,
		Requests: 2600, Duration: 10 * time.Minute, Timeout: time.Minute, // takes 6 s on an idle machine
	})
	if err != nil {
		t.Fatal(err)
	}
	// Other tests may run. The slower answers are, the slower is counting.
	r := log.Report()
	lag := max(2*time.Second, time.Duration(5*r.Service.MaxMS)*time.Millisecond)
	s, err := log.Score(load.OracleOptions{Rules: rules, Lag: lag})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func parse(t *testing.T, text string) *rule.Set {
	t.Helper()
	rules, err := rule.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// lasting has mitigations that outlast a run, so that every passed request is found even if nodes are slow to
// learn.
const lasting = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 15, period: 30s}], mitigation_timeout: 20s}]"

// A real PoP refuses no innocent client, and its headers are correct.
func TestRealPoP(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"one rule":              "rules: [{id: all, characteristics: [ip], limits: [{threshold: 15, period: 3s}], mitigation_timeout: 1s}]",
		"to the end of the run": lasting,
		"two rules":             "rules: [{id: all, characteristics: [ip], limits: [{threshold: 15, period: 3s}, {threshold: 40, period: 30s}]}, {id: more, characteristics: [ip], limits: [{threshold: 12, period: 2s}], mitigation_timeout: 1s}]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := parse(t, rules)
			r, s := runMixed(t, mixed, rules, startPoP(t, rules, netip.MustParsePrefix("127.0.0.0/8")))
			if len(r.Nodes) != 3 || r.Statuses["200"]+r.Statuses["429"] != r.Sending.Requests {
				t.Errorf("nodes %v, statuses %v", r.Nodes, r.Statuses)
			}
			// On a busy machine requests may come too late to exceed the threshold of a short period.
			if s.InnocentRefused != 0 || s.Exact >= 100 && s.Refused < 50 {
				t.Errorf("%+v", s)
			}
			for _, f := range s.Faults {
				t.Errorf("fault %s: %s %v", f.Name, f.Text, f.Clients)
			}
		})
	}
}

// Only the node of a real PoP that never refuses is reported.
func TestRealPoPLeak(t *testing.T) {
	t.Parallel()
	rules := parse(t, lasting)
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Edge-Node", "open") }))
	defer open.Close()
	// No client is near the threshold: otherwise the requests at this node, which the others do not count,
	// would decide.
	calm := strings.Replace(mixed, "offset: 100", "offset: 10000", 1)
	_, s := runMixed(t, calm, rules, append(startPoP(t, rules, netip.MustParsePrefix("127.0.0.0/8")), target(t, open.URL)))
	if len(s.Faults) != 1 || s.Faults[0].Name != judge.DeafNode || s.Faults[0].Node != "open" {
		t.Errorf("faults %+v, want a node that lets through what others refuse", s.Faults)
	}
}

// A PoP that does not trust the generator counts all clients as one. The report gives this
// reason only.
func TestDistrust(t *testing.T) {
	t.Parallel()
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 15, period: 3s}], mitigation_timeout: 1s}]")
	_, s := runMixed(t, mixed, rules, startPoP(t, rules))
	if s.InnocentRefused < 100 || len(s.Faults) != 1 || s.Faults[0].Name != judge.ClientsAsOne ||
		!strings.HasSuffix(s.Faults[0].Text, ": does the PoP trust this machine's X-Forwarded-For? (--trusted-proxy 127.0.0.1/32)") {
		t.Errorf("%d innocent requests refused, faults %+v", s.InnocentRefused, s.Faults)
	}
}
