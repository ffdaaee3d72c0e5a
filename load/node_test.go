package load_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A sender sends requests to the code of real nodes, without HTTP.
type sender struct {
	sim      *analysis.Simulation
	source   load.Steady
	began    time.Time
	requests []load.DecidedRequest
}

func newSender(t rapid.TB, o analysis.PoPOptions, rules *rule.Set, began time.Time) *sender {
	t.Helper()
	o.Spread = analysis.ByRequest
	sim, err := analysis.NewSimulation(o, rules)
	if err != nil {
		t.Fatal(err)
	}
	return &sender{sim: sim, source: load.Steady{Clients: 1500}, began: began}
}

// send sends a request that arrives half a millisecond later.
func (s *sender) send(at time.Duration, client uint64) {
	now, addr := s.began.Add(at).Add(500*time.Microsecond), s.source.Addr(client)
	d := s.sim.Decide(&accesslog.Entry{Time: now.UnixMicro(), Client: addr.String(), Addr: addr, Method: "GET", Host: "example.com", Path: "/", Status: 200})
	q := load.DecidedRequest{At: at, Client: client, Refused: d.Verdict.Refused()}
	if q.Refused {
		q.RetryAfter = uint32(max(1, (d.Deadline().Sub(now)+time.Second-1)/time.Second))
	}
	s.requests = append(s.requests, q)
}

// judge returns the score, which must have no faults.
func (s *sender) judge(t rapid.TB, o load.JudgeOptions) *judge.Score {
	t.Helper()
	score, err := load.DecidedLog(s.began, &s.source, s.requests).Score(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range score.Faults {
		t.Errorf("%s: %s (%d of %d requests, %v)", f.Name, f.Text, f.Requests, len(s.requests), f.Clients)
	}
	if score.InnocentRefused > 0 {
		t.Errorf("%d innocent requests refused", score.InnocentRefused)
	}
	return score
}

// The judge finds no fault with the code of real nodes, whatever the rule, as long as their lag is within
// its bound.
func TestNodesHaveNoFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]string{
			"{threshold: 5, period: 2s}", "{threshold: 10, period: 10s}", "{threshold: 3, period: 1s}, {threshold: 12, period: 10s}",
			"{threshold: 10, period: 10s, sub_windows: auto}", "{threshold: 20, period: 6s, sub_windows: 4}",
			"{threshold: 10, period: 5s, estimate: fixed}", "{threshold: 10, period: 6s, sub_windows: 4, estimate: whole_oldest}",
			"{threshold: 5, period: 10s, round: down}", "{threshold: 3, period: 5s, sub_windows: auto, round: down}",
			"{threshold: 4, period: 2s, round: down}, {threshold: 20, period: 6s, sub_windows: 4}",
		}).Draw(t, "limits")
		timeout := rapid.SampledFrom([]string{"0s", "1s", "15s"}).Draw(t, "timeout")
		more := rapid.SampledFrom([]string{"", ", {id: more, characteristics: [ip], limits: [{threshold: 20, period: 15s}], mitigation_timeout: 3s}",
			", {id: more, characteristics: [ip], limits: [{threshold: 20, period: 15s}], mitigation_timeout: 3s, count_refused: true}",
			", {id: more, characteristics: [host], limits: [{threshold: 20, period: 4s}], mitigation_timeout: 1s}, {id: ban, characteristics: [ip, host], limits: [{threshold: 30, period: 15s}], mitigation_timeout: 6s, count_refused: true}",
		}).Draw(t, "another rule")
		cost := rapid.SampledFrom([]string{"", "", "count: {cost: 3}, "}).Draw(t, "cost")
		rules, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, %scharacteristics: [ip], limits: [%s], mitigation_timeout: %s}%s]", cost, limits, timeout, more))
		if err != nil {
			t.Fatal(err)
		}
		o := analysis.PoPOptions{
			Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"),
			Lag:   time.Duration(rapid.SampledFrom([]int{0, 0, 2, 30}).Draw(t, "lag in ms")) * time.Millisecond,
			Skew:  time.Duration(rapid.SampledFrom([]int{0, 4}).Draw(t, "skew in ms")) * time.Millisecond,
		}
		s, at := newSender(t, o, rules, time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)), time.Duration(0)
		gaps := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 7, 50, 50, 150, 400, 900}), 50, 250).Draw(t, "gaps in ms")
		clients := rapid.SliceOfN(rapid.SampledFrom([]uint64{0, 0, 0, 1, 2}), len(gaps), len(gaps)).Draw(t, "clients")
		for i, gap := range gaps {
			at += time.Duration(gap) * time.Millisecond
			s.send(at, clients[i])
		}
		// Nodes count sub-windows in ticks of 10 ms: a request may appear that much older.
		s.judge(t, load.JudgeOptions{Rules: rules, Lag: 4*o.Lag + 10*time.Millisecond, Skew: o.Skew/2 + 10*time.Millisecond})
	})
}

// A PoP that does not count what other rules refuse never bans the client that keeps sending, and the judge says why.
func TestRefusedRequestsThatDoNotCount(t *testing.T) {
	const text = "rules: [{id: throttle, characteristics: [ip], limits: [{threshold: 5, period: 2s}]}, {id: ban, characteristics: [ip], limits: [{threshold: 60, period: 10s}], mitigation_timeout: 20s%s}]"
	rules := parse(t, fmt.Sprintf(text, ", count_refused: true"))
	for _, actual := range []*rule.Set{rules, parse(t, fmt.Sprintf(text, ""))} {
		s := newSender(t, analysis.PoPOptions{Nodes: 2}, actual, time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC))
		for at := time.Duration(0); at < 30*time.Second; at += 50 * time.Millisecond {
			s.send(at, 1)
		}
		score, err := load.DecidedLog(s.began, &s.source, s.requests).Score(load.JudgeOptions{Rules: rules, Lag: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		wrong := slices.ContainsFunc(score.Faults, func(f judge.Fault) bool { return f.Name == "counts_only_what_passes" })
		if wrong != (actual != rules) || !wrong && len(score.Faults) > 0 {
			t.Errorf("with the right rules: %t, faults: %+v", actual == rules, score.Faults)
		}
	}
}

// The judge finds no fault with real nodes that shed, for any secret and any clients. It compares the count of passed
// requests. The requests come from five networks, some of which send more than others.
func TestSheddingNodesHaveNoFaults(t *testing.T) {
	t.Parallel()
	const client = "{id: client, characteristics: [ip], limits: [{threshold: 30, period: 10s}]}, "
	for seed, text := range []string{
		"{id: block, characteristics: ['network:24/48'], limits: [{threshold: 200, period: 10s}], action: shed}",
		client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 200, period: 10s}], action: shed}, {id: wide, characteristics: ['network:21/48'], limits: [{threshold: 600, period: 10s}], action: shed}",
		"{id: all, characteristics: [host], limits: [{threshold: 300, period: 2s}, {threshold: 1200, period: 10s}], mitigation_timeout: 4s, action: shed}",
		client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], min_clients: 40, action: shed}",
		client + "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 300, period: 10s}], min_clients: 20}",
	} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rules := parse(t, "rules: ["+text+"]")
			lag := []time.Duration{2, 30, 0}[seed%3] * time.Millisecond
			s := newSender(t, analysis.PoPOptions{Nodes: 1 + (seed+1)%3, Lag: lag}, rules, time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC))
			random := rand.New(rand.NewPCG(uint64(seed), 7))
			for at := time.Duration(0); at < 30*time.Second; at += time.Duration(random.ExpFloat64() * float64(time.Second) / 250) {
				network := min(random.IntN(5), random.IntN(5))
				if at < 12*time.Second && network == 1 {
					continue
				}
				s.send(at, uint64(network*256+random.IntN(250)))
			}
			score := s.judge(t, load.JudgeOptions{Rules: rules, Lag: 4*lag + 200*time.Millisecond, Skew: time.Millisecond})
			if score.BystandersRefused < 100 || len(score.NotJudged) > 0 {
				t.Errorf("refused: %d requests of bystanders; not judged: %v", score.BystandersRefused, score.NotJudged)
			}
			t.Logf("%+v", score.Shed)
		})
	}
}
