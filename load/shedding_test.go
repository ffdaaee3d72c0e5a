package load_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
)

// The judge finds no fault with the shedding of real nodes, for any secret and any clients, and compares the
// number of passed requests.
func TestSheddingNodesHaveNoFaults(t *testing.T) {
	t.Parallel()
	const client = "{id: client, characteristics: [ip], limits: [{threshold: 30, period: 10s}]}, "
	for name, text := range map[string]string{
		"one level":  "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 200, period: 10s}], action: shed}",
		"two levels": client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 200, period: 10s}], action: shed}, {id: wide, characteristics: ['network:21/48'], limits: [{threshold: 600, period: 10s}], action: shed}",
		"two limits": "{id: all, characteristics: [host], limits: [{threshold: 300, period: 2s}, {threshold: 1200, period: 10s}], mitigation_timeout: 4s, action: shed}",
		"clients":    client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], min_clients: 40, action: shed}",
		"all":        client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 300, period: 10s}], min_clients: 20}",
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				s := shed(t, text, seed)
				for _, f := range s.Faults {
					t.Errorf("%s: %s (%d requests, %v)", f.Name, f.Text, f.Requests, f.Clients)
				}
				if s.InnocentRefused > 0 || s.BystandersRefused < 100 || len(s.NotJudged) > 0 {
					t.Errorf("refused: %d requests of innocents, %d of bystanders; not judged: %v", s.InnocentRefused, s.BystandersRefused, s.NotJudged)
				}
				for _, of := range s.Shed {
					t.Logf("%+v", of)
				}
			})
		}
	}
}

// shed makes a PoP decide requests from five networks, some of which send more than others.
func shed(t *testing.T, text string, seed uint64) *judge.Score {
	t.Helper()
	rules := parse(t, "rules: ["+text+"]")
	lag := []time.Duration{0, 2, 30}[seed%3] * time.Millisecond
	sim, err := analysis.NewSimulation(analysis.PoPOptions{Nodes: 1 + int(seed%3), Spread: analysis.ByRequest, Seed: seed, Lag: lag}, rules)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 7))
	source := &load.Steady{Clients: 1500}
	began := time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)
	var requests []load.Decided
	for at := time.Duration(0); at < 45*time.Second; at += time.Duration(random.ExpFloat64() * float64(time.Second) / 250) {
		network := min(random.IntN(5), random.IntN(5))
		if at < 12*time.Second && network == 1 {
			continue
		}
		who := uint64(network*256 + random.IntN(250))
		now, addr := began.Add(at).Add(500*time.Microsecond), source.Addr(who)
		d := sim.Decide(&accesslog.Entry{Time: now.UnixMicro(), Client: addr.String(), Addr: addr, Method: "GET", Host: "example.com", Path: "/", Status: 200})
		q := load.Decided{At: at, Client: who, Refused: d.Verdict.Refused()}
		if q.Refused {
			q.RetryAfter = uint32(max(1, (d.Deadline().Sub(now)+time.Second-1)/time.Second))
		}
		requests = append(requests, q)
	}
	s, err := load.DecidedLog(began, source, requests).Score(load.OracleOptions{Rules: rules, Lag: 4*lag + 200*time.Millisecond, Skew: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
