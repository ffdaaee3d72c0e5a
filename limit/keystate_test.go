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
