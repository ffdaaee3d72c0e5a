package load_test

import (
	"os"
	"testing"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConditions(t *testing.T) {
	r := &load.Report{
		Latency: load.Latency{P99MS: 12}, Statuses: map[string]uint64{"429": 3}, Failures: map[string]uint64{"timeout": 1},
		Score: &judge.Score{InnocentRefused: 2, Faults: []judge.Fault{{Name: "node_ignores_mitigations"}}},
	}
	for text, want := range map[string]bool{
		"innocent_refused > 0": true, "score.innocent_refused == 2": true, "latency.p99_ms > 12": false, `statuses["429"] == 3`: true,
		`statuses["500"] > 0`: false, "failures.timeout + failures.closed == 1": true, "any(faults, .name == 'node_ignores_mitigations')": true,
		"retry_after.untrue > 0 or wrongly_allowed.unexplained > 0": false,
	} {
		c, err := load.ParseCondition(text, true)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := c.Holds(r); got != want || err != nil {
			t.Errorf("%s is %t, %v; want %t", text, got, err, want)
		}
	}
	for _, text := range []string{"", "innocent_refused", "innocent > 0", "latency.p98_ms > 1", "failures.bad_luck > 0", "1 +"} {
		if _, err := load.ParseCondition(text, true); err == nil {
			t.Errorf("ParseCondition(%q) succeeded, want an error", text)
		}
	}
	if _, err := load.ParseCondition("innocent_refused > 0", false); err == nil {
		t.Error("ParseCondition without a score: no error for a condition on the score")
	}
}
