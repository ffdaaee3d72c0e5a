package load_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop"
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

// A real PoP refuses no innocent client, and the replay of the run agrees with the oracle.
func TestRealPoP(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer origin.Close()
	rules, err := rule.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 15, period: 3s}], mitigation_timeout: 1s}]"))
	if err != nil {
		t.Fatal(err)
	}
	local, err := pop.StartLocal(pop.LocalOptions{Node: pop.Options{
		Rules: rules, Origin: origin.URL, NodeHeader: "X-Edge-Node", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := local.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	m, err := mix.Parse("mixed.yaml", []byte(mixed))
	if err != nil {
		t.Fatal(err)
	}
	o := load.Options{Source: load.NewMixed(m, 1), Duration: 6 * time.Second, Identity: load.Identity{Forwarded: true}, Return: true, Connections: 12}
	for _, n := range local.Nodes() {
		o.Targets = append(o.Targets, target(t, "http://"+n.Addr("http").String()))
	}
	log, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Where this test runs much else may, so that a node may be slow to learn.
	s, err := log.Score(load.OracleOptions{Rules: rules, Lag: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := log.Report()
	if len(r.Nodes) != 3 || r.Statuses["200"]+r.Statuses["429"] != r.Sending.Requests {
		t.Errorf("nodes %v, statuses %v", r.Nodes, r.Statuses)
	}
	if s.InnocentRefused != 0 || s.Refused < 100 || s.Exact < 100 || s.AttackNotRefused != 0 {
		t.Errorf("%+v", s)
	}
	for _, f := range s.Faults {
		t.Errorf("fault %s: %s %v", f.Name, f.Text, f.Clients)
	}
}
