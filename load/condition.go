package load

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/edgelimit/edge/load/judge"
)

// A Condition is a boolean expression about a report, such as innocent_refused > 0, latency.p99_ms > 20 ||
// len(faults) > 0, or statuses["500"] > 0. Its names are those of the report's JSON; the prefix score. may be
// omitted.
type Condition struct {
	text    string
	program *vm.Program
}

// ParseCondition parses a condition. scored says whether reports have scores.
func ParseCondition(text string, scored bool) (*Condition, error) {
	empty := &Report{Statuses: map[string]uint64{}, Failures: map[string]uint64{}, Nodes: []NodeCount{}, Components: []ComponentCount{}}
	if scored {
		empty.Score = &judge.Score{Faults: []judge.Fault{}, Rules: []judge.RuleScore{}, NotJudged: []string{}, Shed: []judge.Shed{}}
	}
	names, err := namesOf(empty)
	if err != nil {
		return nil, err
	}
	program, err := expr.Compile(text, expr.Env(names), expr.AsBool())
	if err != nil {
		return nil, firstLine(err)
	}
	c := &Condition{text: text, program: program}
	if _, err := c.Holds(empty); err != nil { // a nested name may be wrong
		return nil, err
	}
	return c, nil
}

// Holds reports whether the condition is true for r.
func (c *Condition) Holds(r *Report) (bool, error) {
	names, err := namesOf(r)
	if err != nil {
		return false, err
	}
	result, err := expr.Run(c.program, names)
	if err != nil {
		return false, firstLine(err)
	}
	return result == true, nil
}

// firstLine removes the snippet that shows the position of an error.
func firstLine(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New("load: " + text)
}

// String returns the condition as it was written.
func (c *Condition) String() string { return c.text }

// namesOf returns the values of the names that a condition may use.
func namesOf(r *Report) (names map[string]any, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &names); err != nil {
		return nil, err
	}
	// Statuses and failures that did not occur have the count 0. Other names are mistakes.
	statuses, failures := map[string]any{}, map[string]any{}
	for status := 100; status < 600; status++ {
		name := strconv.Itoa(status)
		statuses[name] = r.Statuses[name]
	}
	for _, name := range failureNames[1:] {
		failures[name] = r.Failures[name]
	}
	names["statuses"], names["failures"] = statuses, failures
	if score, ok := names["score"].(map[string]any); ok {
		maps.Copy(names, score)
	}
	return names, nil
}
