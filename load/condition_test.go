package load_test

import (
	"os"
	"strings"
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
		"innocent_refused > 0": true, "score.innocent_refused == 2": true, "latency.p99_ms > 12": false, "latency.p99_ms>=12": true, "latency.p99_ms != 13": true, "statuses.429 == 3": true,
		"statuses.500 > 0": false, "failures.timeout >= 1": true, "failures.closed != 0": false, "faults > 0": true, "nodes > 0": false, "sending.kept_rate == 0": true,
		"retry_after.untrue <= 1e3": true, "wrongly_allowed.unexplained < 0": false,
	} {
		c, err := load.ParseCondition(text, true)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, _, err := c.Holds(r); got != want || err != nil {
			t.Errorf("%s is %t, %v; want %t", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "write a field", "innocent_refused": "write a field", "innocent_refused > none": "none is not a number", "innocent_refused > 0 || faults > 0": "write a field",
		"inocent_refused > 0": "did you mean innocent_refused?", "latency.p98_ms > 1": "did you mean latency.p9", "bad_luck > 0": "the fields are attack_never_refused, ", "statuses.20x > 0": "unknown field statuses.20x",
	} {
		if _, err := load.ParseCondition(text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCondition(%q) = %v, want %s", text, err, want)
		}
	}
	if _, err := load.ParseCondition("innocent_refused > 0", false); err == nil {
		t.Error("ParseCondition without a score: no error for a condition on the score")
	}
}
