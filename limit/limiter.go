// Package limit decides whether requests pass.
//
// # The decision
//
// [Limiter.Decide] matches a request against the rules, computes the key for each matching rule, and looks it up in the
// table of mitigations. It reads memory only: it never waits, never allocates for ordinary requests and never returns
// an error. Metrics count infrastructure failures, and the request passes: the limiter fails open, except for rules
// with on_failure: closed. While the shard that owns the key of such a rule is unavailable, a request that no
// mitigation refuses has the verdict [Unavailable] and is not counted. That check reads the ring's table and a flag of
// the shard.
//
// Requests that pass are offered to package async. When the counts of a key exceed a limit, that package merges a
// record into this node's table, sends it to the peers, and stores it alongside the counters. A request starts the
// mitigation immediately if it exceeds a limit together with the known counts of its key and the requests that wait to
// be counted.
package limit

import (
	"sync"
	"sync/atomic"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Limiter.
type Options = async.Options

// ErrNotMitigated is returned by Lift if the key has no mitigation.
var ErrNotMitigated = async.ErrNotMitigated

// A Limiter decides which requests pass, and counts them with its Loop. Its methods may be called concurrently, except
// Run, which may be called once.
type Limiter struct {
	*async.Loop
	o         Options
	rules     atomic.Pointer[rules]
	metrics   *metrics
	abandoned abandonedCount
	decisions *decision.Log // nil logs nothing

	loading sync.Mutex // held by SetRules, so that the loop and the limiter get the same last set
}

// New returns a Limiter. It decides immediately, but counts nothing until Run is called. decisions logs the decisions
// about a sample of the keys, and may be nil.
func New(o Options, decisions *decision.Log) (l *Limiter, err error) {
	l = &Limiter{o: o, decisions: decisions, metrics: newMetrics(o.Registerer),
		abandoned: abandonedCount{byKey: map[counter.Key]int{}}}
	if l.Loop, err = async.New(o, l.metrics.start, l.counted); err != nil {
		return nil, err
	}
	l.SetRules(o.Rules)
	return l, nil
}

// SetRules replaces the rules atomically. Active mitigations keep their deadlines. For the counts, see
// [async.Loop.SetRules].
func (l *Limiter) SetRules(set *rule.Set) {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.Loop.SetRules(set)
	l.rules.Store(l.metrics.bind(set))
}

// counted adds n to the metric of r, a rule of the counting loop's set.
func (l *Limiter) counted(r *rule.Rule, n uint64) {
	if rules := l.rules.Load(); r.Index < len(rules.metered) && rules.set.Rules()[r.Index] == r {
		rules.metered[r.Index].counted.Add(float64(n))
	}
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *rule.Set { return l.rules.Load().set }
