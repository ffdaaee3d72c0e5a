package limit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/pop/rule"
)

// maxMeteredRules is how many rules have series of their own. Scraping millions of series would
// slow a node down; further rules share a label.
const (
	maxMeteredRules = 1000
	otherRules      = "_other"
)

type metrics struct {
	requests *prometheus.CounterVec
	started  *prometheus.CounterVec
	learned  map[string]prometheus.Counter
	unlogged prometheus.Counter
	none     *ruleMetrics
	byRule   map[string]*ruleMetrics // guarded by the caller of bind
}

// ruleMetrics are the series of one rule, found once when rules are loaded.
type ruleMetrics struct {
	verdicts [verdicts]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_requests_total",
			Help: "Requests by verdict and by the rule that decided; the rule is empty if none did.",
		}, []string{"rule", "verdict"}),
		started: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_mitigations_started_total",
			Help: "Mitigations that started on this node.",
		}, []string{"rule"}),
		learned: map[string]prometheus.Counter{},
		unlogged: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_mitigation_log_lines_dropped_total",
			Help: "Starts and ends of mitigations that were not logged because the key flaps or too many lines were logged in a second.",
		}),
		byRule: map[string]*ruleMetrics{},
	}
	learned := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_mitigations_learned_total",
		Help: "New mitigation records from peers and shards, by source.",
	}, []string{"source"})
	for _, source := range []string{"shard", "peer"} {
		m.learned[source] = learned.WithLabelValues(source)
	}
	m.none = m.of("", Passed, Allowed, Denied, Malformed)
	return m
}

// of creates the series of a rule, so that they exist from the start.
func (m *metrics) of(id string, possible ...Verdict) *ruleMetrics {
	r := new(ruleMetrics)
	for _, v := range possible {
		r.verdicts[v] = m.requests.WithLabelValues(id, v.String())
	}
	if id != "" {
		m.started.WithLabelValues(id)
	}
	return r
}

// startedBy returns the counter of mitigations started by r, which may be of an older set.
func (m *metrics) startedBy(r *rule.Rule) prometheus.Counter {
	id := r.ID
	if r.Index >= maxMeteredRules {
		id = otherRules
	}
	return m.started.WithLabelValues(id)
}

// bind finds the series of the rules of set, and removes those of rules that no longer exist.
func (m *metrics) bind(set *rule.Set) *rules {
	bound := &rules{set: set, none: m.none, metered: make([]*ruleMetrics, len(set.Rules()))}
	byRule := make(map[string]*ruleMetrics, min(len(set.Rules()), maxMeteredRules)+1)
	for i, r := range set.Rules() {
		id := r.ID
		if i >= maxMeteredRules {
			id = otherRules
		}
		if byRule[id] == nil {
			if byRule[id] = m.byRule[id]; byRule[id] == nil {
				byRule[id] = m.of(id, Logged, ShadowBanned, Blocked, Closed, Unavailable)
			}
		}
		bound.metered[i] = byRule[id]
	}
	for id := range m.byRule {
		if byRule[id] == nil {
			m.requests.DeletePartialMatch(prometheus.Labels{"rule": id})
			m.started.DeleteLabelValues(id)
		}
	}
	m.byRule = byRule
	return bound
}
