package analysis

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// naive counts by remembering everything, and looks everything through.
type naive struct {
	rule    *rule.Rule
	counted map[string][]int64
	until   map[string]int64
}

func (n *naive) refuses(client string, t int64) bool {
	if t < n.until[client] {
		return true
	}
	n.counted[client] = append(n.counted[client], t)
	over := func(l rule.Limit, at int64) bool {
		in := 0
		for _, s := range n.counted[client] {
			if s > at-l.Period.Microseconds() && s <= at {
				in++
			}
		}
		return in > int(l.Threshold)
	}
	for _, l := range n.rule.Limits {
		if !over(l, t) {
			continue
		}
		until := t + n.rule.MitigationTimeout.Microseconds()
		for _, s := range n.counted[client] {
			if left := s + l.Period.Microseconds(); left > until && over(l, left-1) {
				until = left
			}
		}
		n.until[client] = max(n.until[client], until)
	}
	return false
}

// The exact PoP decides as one that remembers everything.
func TestExactPoPIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]string{
			"[{threshold: 3, period: 2s}]", "[{threshold: 2, period: 1s}, {threshold: 4, period: 5s}]", "[{threshold: 1, period: 3s}]",
		}).Draw(t, "limits")
		timeout := rapid.SampledFrom([]string{"0s", "1s", "4s"}).Draw(t, "timeout")
		set, err := rule.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: %s, mitigation_timeout: %s}]", limits, timeout))
		if err != nil {
			t.Fatal(err)
		}
		x, err := newExactPoP(PoPOptions{}, set)
		if err != nil {
			t.Fatal(err)
		}
		want := &naive{set.Rules()[0], map[string][]int64{}, map[string]int64{}}
		steps := rapid.SliceOfN(rapid.Int64Range(0, 12), 1, 120).Draw(t, "quarters of a second between requests")
		clients := rapid.SliceOfN(rapid.SampledFrom([]string{"1", "1", "1", "2"}), len(steps), len(steps)).Draw(t, "clients")
		now := int64(1e15)
		for i, step := range steps {
			now += max(0, step-6) * 250e3 // half of them at once
			e := accesslog.Entry{Time: now, Client: clients[i], Method: "GET", Path: "/"}
			req := new(requests).of(&e)
			d := x.decide(&e, &req)
			if want := want.refuses(e.Client, now); d.Verdict.Refused() != want {
				t.Fatalf("request %d is %v, want refused = %t", i+1, d.Verdict, want)
			}
		}
	})
}
