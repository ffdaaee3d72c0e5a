package decisions

import (
	"slices"

	"github.com/edgelimit/edge/analysis/exact"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// A limiter decides the requests of one key, like a node that learns of each one immediately.
type limiter struct {
	exactly bool // counts by the exact sliding log
	rule    *rule.Rule
	limits  []limitState
	until   int64 // end of the mitigation
	why     why
}

// A limitState holds the counts of a limit.
type limitState struct {
	counter.Limit
	windows counter.Windows[int64, uint64]
	log     exact.Log
}

// why is the estimate that started the mitigation, and the period of its limit.
type why struct {
	period   int64
	estimate counter.Estimate
}

// reset discards all requests and the mitigation.
func (l *limiter) reset() { *l = limiter{exactly: l.exactly} }

// use replaces the rule at t. As in nodes, the counts of limits with the same period and layout stay,
// and a mitigation that the new thresholds would not have started ends.
func (l *limiter) use(r *rule.Rule, t int64) {
	if l.rule == r {
		return
	}
	before := l.limits
	l.rule, l.limits = r, nil
	for i := range r.Limits {
		limit := limitState{Limit: r.Limits[i].Counted()}
		same := slices.IndexFunc(before, func(b limitState) bool {
			return b.Period == limit.Period && (l.exactly || b.Layout == limit.Layout)
		})
		if same >= 0 {
			limit.windows, limit.log = before[same].windows, before[same].log
		}
		l.limits = append(l.limits, limit)
	}
	acts := func(s limitState) bool { return s.Period >= l.why.period && l.why.estimate.Over(s.Threshold) }
	if t < l.until && !slices.ContainsFunc(l.limits, acts) {
		l.until = t
	}
}

// decide decides a request at t, and counts it if it passes. t must not decrease from call to call.
func (l *limiter) decide(t int64, cost uint64) (refused bool) {
	refused = t < l.until
	if !refused || l.rule.CountWhileMitigated {
		l.count(t, cost)
	}
	return refused
}

func (l *limiter) count(t int64, cost uint64) {
	if cost == 0 {
		return
	}
	timeout := l.rule.MitigationTimeout.Microseconds()
	if t < l.until {
		timeout = 0 // the mitigation is only prolonged
	}
	for i := range l.limits {
		s := &l.limits[i]
		if back, estimate, over := s.add(t, cost, l.exactly); over {
			if until := max(t+timeout, back); until > l.until {
				l.until, l.why = until, why{s.Period, estimate}
			}
		}
	}
}

// add counts a request, and reports whether the limit is exceeded, and if so, by which estimate and until when.
func (s *limitState) add(t int64, cost uint64, exactly bool) (back int64, e counter.Estimate, over bool) {
	if exactly {
		if !s.log.Exceeds(cost, s.Threshold, t, s.Period) {
			return 0, e, false
		}
		return s.log.Back(s.Threshold, s.Period), counter.Estimate{Whole: s.log.Total(), Of: 1}, true
	}
	w := &s.windows
	index, elapsed := counter.WindowAt(t, s.Period)
	w.Roll(index)
	w.Cur = s.Count(w.Cur, cost, elapsed)
	if e = s.Estimate(w.Prev, w.Cur, elapsed); !e.Over(s.Threshold) {
		return 0, e, false
	}
	return t - elapsed + s.Back(w.Prev, w.Cur, elapsed), e, true
}
