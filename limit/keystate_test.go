package limit_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A mitigation lasts until its timeout is over and the limit is back at its threshold, and is extended if refused
// requests count. A new rule keeps the counts, and ends the mitigation if it would not have started it.
func TestKeyState(t *testing.T) {
	r := &rule.Rule{ID: "all", Limits: []rule.Limit{{Threshold: 3, Period: 10 * time.Second}}, MitigationTimeout: 5 * time.Second, CountWhileMitigated: true}
	lenient := *r
	lenient.Limits = []rule.Limit{{Threshold: 100, Period: 10 * time.Second}}
	const second = 1_000_000
	for _, test := range []struct {
		exactly       bool
		first, second int64 // ends of the mitigation after the fourth and the fifth request
	}{{false, 12_500_000, 14 * second}, {true, 10 * second, 11 * second}} {
		exactly := test.exactly
		s := limit.NewKeyState(r, exactly)
		var last limit.Excess
		for i, want := range []struct {
			over  bool
			until int64 // 0 if the key is not mitigated
		}{
			{false, 0},
			{false, 0},
			{false, 0},
			{true, test.first},
			{true, test.second},
		} {
			now := int64(i) * second
			e, over := s.Add(now, 1)
			if over && s.Mitigate(e, now) {
				last = e
			}
			until, mitigated := s.Until(now)
			if over != want.over || mitigated != (want.until > 0) || mitigated && until != want.until {
				t.Fatalf("exact=%t: request %d: over=%t, mitigated=%t until %d, want %+v", exactly, i+1, over, mitigated, until, want)
			}
		}
		s.Replace(&lenient, last, 5*second)
		if until, mitigated := s.Until(5 * second); mitigated {
			t.Errorf("exact=%t: with a greater threshold, the key is mitigated until %d", exactly, until)
		}
		s.Replace(r, limit.Excess{}, 5*second)
		if _, over := s.Add(5*second, 1); !over {
			t.Errorf("exact=%t: the new rule forgot the counts", exactly)
		}
	}
}

// Of several exceeded limits, the one that is back at its threshold last decides when the mitigation ends. If the rule
// sheds, a limit is back after a whole period: refused requests count, too. A new rule keeps the counts of limits with
// the same sub-windows.
func TestExcessOfSeveralLimits(t *testing.T) {
	const second = 1_000_000
	limits := []rule.Limit{
		{Threshold: 1, Period: 10 * time.Second}, {Threshold: 1, Period: time.Minute}, {Threshold: 1, Period: 20 * time.Second},
	}
	for _, action := range []rule.Action{rule.Block, rule.Shed} {
		s := limit.NewKeyState(&rule.Rule{ID: "all", Limits: limits, Action: action}, true)
		s.Add(0, 1)
		want := limit.Excess{Back: 60 * second, Period: 60 * second, Estimate: 2}
		if action == rule.Shed {
			want.Back += 5 * second
		}
		if e, over := s.Add(5*second, 1); !over || e != want {
			t.Errorf("%v: %+v, %t; want %+v", action, e, over, want)
		}
	}
	s := limit.NewKeyState(&rule.Rule{ID: "all", Limits: limits[1:2]}, false)
	s.Add(0, 1)
	s.Replace(&rule.Rule{ID: "all", Limits: []rule.Limit{{Threshold: 1, Period: time.Minute, SubWindows: 6}}}, limit.Excess{}, second)
	if _, over := s.Add(second, 1); over {
		t.Error("the new rule kept a count without sub-windows as one with six")
	}
}
