package main

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
)

// A fault, a condition that holds, and conditions about rules that are not judged fail the run.
func TestLoadFails(t *testing.T) {
	condition, err := load.ParseCondition("innocent_refused > 0", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name       string
		conditions []*load.Condition
		score      judge.Score
		want       string // part of the error
	}{
		{"all rules are judged", []*load.Condition{condition}, judge.Score{}, ""},
		{"one is not judged", []*load.Condition{condition}, judge.Score{NotJudged: []string{"login: characteristic 9"}}, "--fail-if: cannot judge login: characteristic 9"},
		{"one is not judged, without conditions", nil, judge.Score{NotJudged: []string{"login: characteristic 9"}}, ""},
		{"the condition is true", []*load.Condition{condition}, judge.Score{InnocentRefused: 3}, "--fail-if: innocent_refused > 0 (was 3)"},
		{"a fault", nil, judge.Score{Faults: []judge.Fault{{Name: "leaks", Text: "requests pass"}}}, "fault leaks: requests pass"},
		{"no rule applies", nil, judge.Score{Faults: []judge.Fault{{Name: "no_rule_applies", Text: "no request was sent"}}}, "no request was sent"},
	} {
		r := &load.Report{Statuses: map[string]uint64{}, Score: &test.score}
		err := (&judgeFlags{conditions: test.conditions}).verdict(r)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
