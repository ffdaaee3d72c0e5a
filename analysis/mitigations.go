package analysis

import (
	"maps"
	"slices"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// mitigations collect the number and duration of each rule's mitigations.
type mitigations struct {
	set   *rule.Set
	rules []ruleMitigations     // by the index of the rule
	spans map[counter.Key]*span // mitigations that may still be extended
}

// A ruleMitigations has the mitigations of a rule. Times are in microseconds.
type ruleMitigations struct {
	n              int // number of mitigations
	total, longest int64
	lasted         map[int64]int // number of mitigations by duration in milliseconds
}

// A span is a mitigation of a key.
type span struct {
	rule       int // index
	start, end int64
}

func newMitigations(rules *rule.Set) mitigations {
	m := mitigations{set: rules, spans: map[counter.Key]*span{}}
	for range rules.Rules() {
		m.rules = append(m.rules, ruleMitigations{lasted: map[int64]int{}})
	}
	return m
}

// add adds a record that a node has made or extended.
func (m *mitigations) add(r mitigation.Record, start, end int64) {
	if s := m.spans[r.Key]; s != nil {
		m.extend(r.Key, s.rule, start, end)
	} else if r.Sample != nil {
		m.extend(r.Key, m.set.Rule(r.Sample.Rule).Index, start, end)
	}
}

// extend adds a mitigation of a key from start to end.
func (m *mitigations) extend(key counter.Key, rule int, start, end int64) {
	s := m.spans[key]
	switch {
	case s == nil:
		m.spans[key] = &span{rule, start, end}
	case start < s.end: // extended, or started by another node as well
		s.end = max(s.end, end)
	default:
		m.ended(s.rule, s.start, s.end)
		s.start, s.end = start, end
	}
}

// ended adds a mitigation that can no longer be extended.
func (m *mitigations) ended(rule int, start, end int64) {
	r, lasted := &m.rules[rule], end-start
	r.n++
	r.total += lasted
	r.longest = max(r.longest, lasted)
	r.lasted[(lasted+500)/1000]++
}

func (m *mitigations) join(o *mitigations) {
	for _, s := range o.spans {
		m.ended(s.rule, s.start, s.end)
	}
	for i := range o.rules {
		r, other := &m.rules[i], &o.rules[i]
		r.n, r.total, r.longest = r.n+other.n, r.total+other.total, max(r.longest, other.longest)
		for ms, n := range other.lasted {
			r.lasted[ms] += n
		}
	}
}

// median returns the median of the durations, in seconds with a resolution of a millisecond. If their number is
// even, it is the lower of the two in the middle.
func (r *ruleMitigations) median() float64 {
	n := 0
	for _, ms := range slices.Sorted(maps.Keys(r.lasted)) {
		if n += r.lasted[ms]; 2*n >= r.n {
			return float64(ms) / 1e3
		}
	}
	return 0
}
