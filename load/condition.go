package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load/judge"
)

// A Condition compares a number of a report with a constant: innocent_refused > 0, latency.p99_ms > 20 or
// statuses.500 >= 3. Fields are named as in the report's JSON; the prefix score. may be omitted. A list is its number
// of entries, and true is 1.
type Condition struct {
	text, field, operator string
	value                 float64
}

var (
	condition = regexp.MustCompile(`^\s*([\w.]+)\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*$`)
	status    = regexp.MustCompile(`^statuses\.[1-5]\d\d$`)
)

// ParseCondition parses a condition. scored says whether reports have scores.
func ParseCondition(text string, scored bool) (*Condition, error) {
	parts := condition.FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("load: invalid condition %q: write a field, one of <, <=, >, >=, == and !=, and a number",
			text)
	}
	value, err := strconv.ParseFloat(parts[3], 64)
	if err != nil {
		return nil, fmt.Errorf("load: invalid condition %q: %s is not a number", text, parts[3])
	}
	empty := &Report{Statuses: map[string]uint64{}}
	if scored {
		empty.Score = &judge.Score{}
	}
	fields, err := fieldsOf(empty)
	if err != nil {
		return nil, err
	}
	c := &Condition{text, parts[1], parts[2], value}
	if _, known := fields[c.field]; !known && !status.MatchString(c.field) {
		maps.DeleteFunc(fields, func(name string, _ float64) bool { return strings.HasPrefix(name, "score.") })
		names := slices.Sorted(maps.Keys(fields))
		return nil, fmt.Errorf("load: unknown field %s: %s", c.field,
			cmp.Or(prose.Meant(c.field, names), "the fields are "+prose.EnumerateAll(names, "and")))
	}
	return c, nil
}

// Holds reports whether the condition is true for r, and the value of its field.
func (c *Condition) Holds(r *Report) (holds bool, value float64, err error) {
	fields, err := fieldsOf(r)
	value = fields[c.field]
	return operators[c.operator](value, c.value), value, err
}

var operators = map[string]func(a, b float64) bool{
	"<": func(a, b float64) bool { return a < b }, "<=": func(a, b float64) bool { return a <= b },
	"==": func(a, b float64) bool { return a == b },
	">":  func(a, b float64) bool { return a > b }, ">=": func(a, b float64) bool { return a >= b },
	"!=": func(a, b float64) bool { return a != b },
}

// String returns the condition as it was written.
func (c *Condition) String() string { return c.text }

// fieldsOf returns the numbers of a report by name.
func fieldsOf(r *Report) (map[string]float64, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	fields := map[string]float64{}
	for _, name := range failureNames[1:] {
		fields["failures."+name] = 0
	}
	addFields(fields, "", document)
	if score, ok := document["score"].(map[string]any); ok {
		addFields(fields, "", score)
	}
	return fields, nil
}

// addFields adds the numbers in an object, whose fields begin with prefix.
func addFields(fields map[string]float64, prefix string, object map[string]any) {
	for name, value := range object {
		name = prefix + name
		switch v := value.(type) {
		case float64:
			fields[name] = v
		case bool:
			fields[name] = 0
			if v {
				fields[name] = 1
			}
		case nil: // an empty list
			fields[name] = 0
		case []any:
			fields[name] = float64(len(v))
		case map[string]any:
			addFields(fields, name+".", v)
		}
	}
}
