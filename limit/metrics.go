package limit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edge/rule"
)

// maxMeteredRules is the maximum number of rules with their own series. Scraping millions of series
// would slow down a node, so further rules share a label.
const (
	maxMeteredRules = 1000
	otherRules      = "_other"
)

type metrics struct {
	requests   *prometheus.CounterVec
	counted    *prometheus.CounterVec
	started    *prometheus.CounterVec
	bystanders *prometheus.CounterVec
	costs      [costResults]prometheus.Counter
	none       *ruleCounters            // for requests that no rule decided
	byRule     map[string]*ruleCounters // by label; guarded by the caller of bind
}

// ruleCounters are all series of a label that requests need, found once when rules are loaded.
type ruleCounters struct {
	verdicts   [verdicts]prometheus.Counter
	counted    prometheus.Counter
	bystanders prometheus.Counter // nil if each key is a client's own
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: vec("edge_requests_total",
			"Requests by verdict and by the rule that decided; the rule is empty if none did.", "rule", "verdict"),
		counted: vec("edge_requests_counted_total",
			"Requests that this node counted, by rule; a request with a cost counts that many times.", "rule"),
		started: vec("edge_mitigations_started_total", "Mitigations that started on this node.", "rule"),
		bystanders: vec("edge_bystander_requests_total", "Requests refused because of a key shared by several clients "+
			"while no key of the client's own was mitigated, by the rule that decided.", "rule"),
	}
	costs := vec("edge_cost_headers_total",
		"Responses whose cost a rule read from a header or the body, by result; without a valid one, the rule's own "+
			"cost counts.",
		"result")
	for i, result := range []string{"valid", "missing", "invalid", "compressed"} {
		m.costs[i] = costs.WithLabelValues(result)
	}
	m.none = m.of("", Passed, Allowed, Own, Denied, Malformed)
	return m
}

// Results of reading the cost of an answer.
const (
	costValid = iota
	costMissing
	costInvalid
	costEncoded
	costResults
)

// of returns the series of a label for the possible verdicts. They exist from then on.
func (m *metrics) of(label string, possible ...Verdict) *ruleCounters {
	c := new(ruleCounters)
	for _, v := range possible {
		c.verdicts[v] = m.requests.WithLabelValues(label, v.String())
	}
	return c
}

// labelOf returns the label of r, which may be of an older set.
func labelOf(r *rule.Rule) string {
	if r.Index >= maxMeteredRules {
		return otherRules
	}
	return r.ID
}

// start counts a mitigation that r started.
func (m *metrics) start(r *rule.Rule) { m.started.WithLabelValues(labelOf(r)).Inc() }

// Decided returns how many requests r has decided since the start, by verdict.
func (l *Limiter) Decided(r *rule.Rule) map[string]uint64 {
	decided := map[string]uint64{}
	bound := l.rules.Load()
	if r.Index >= len(bound.metered) {
		return decided // it was removed meanwhile
	}
	for v, c := range bound.metered[r.Index].verdicts {
		var m dto.Metric
		if c != nil && c.Write(&m) == nil {
			decided[Verdict(v).String()] = uint64(m.GetCounter().GetValue())
		}
	}
	return decided
}

// bind finds the series of the rules of set, and removes those of rules that no longer exist.
func (m *metrics) bind(set *rule.Set) *rules {
	bound := &rules{set: set, none: m.none, metered: make([]*ruleCounters, len(set.Rules()))}
	before := m.byRule
	m.byRule = make(map[string]*ruleCounters, min(len(set.Rules()), maxMeteredRules)+1)
	for i, r := range set.Rules() {
		label := labelOf(r)
		if m.byRule[label] == nil {
			m.byRule[label] = m.of(label, Logged, ShadowBanned, Blocked, Closed, Unavailable)
			m.byRule[label].counted = m.counted.WithLabelValues(label)
			m.started.WithLabelValues(label)
		}
		bound.metered[i] = m.byRule[label]
		if v := VerdictOf(r.Action); bound.metered[i].verdicts[v] == nil {
			bound.metered[i].verdicts[v] = m.requests.WithLabelValues(label, v.String())
		}
		if r.Width() > 0 {
			bound.metered[i].bystanders = m.bystanders.WithLabelValues(label)
		}
	}
	for label := range before {
		if m.byRule[label] == nil {
			m.requests.DeletePartialMatch(prometheus.Labels{"rule": label})
			m.counted.DeleteLabelValues(label)
			m.started.DeleteLabelValues(label)
			m.bystanders.DeleteLabelValues(label)
		}
	}
	return bound
}
