package decisions

import (
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A limiter decides the requests of one key.
type limiter struct {
	limit.KeyState
	exactly bool         // counts by the exact sliding log
	why     limit.Excess // started or prolonged the mitigation
}

// reset discards all requests and the mitigation.
func (l *limiter) reset() { *l = limiter{exactly: l.exactly} }

// use replaces the rule at t.
func (l *limiter) use(r *rule.Rule, t int64) {
	switch l.Rule {
	case r:
	case nil:
		l.KeyState = limit.NewKeyState(r, l.exactly)
	default:
		l.Replace(r, l.why, t)
	}
}

// decide decides a request at t, and counts it if it passes. t must not decrease from call to call.
func (l *limiter) decide(t int64, cost uint64) (refused bool) {
	_, refused = l.Until(t)
	if !refused || l.Rule.CountWhileMitigated {
		l.count(t, cost)
	}
	return refused
}

func (l *limiter) count(t int64, cost uint64) {
	if cost == 0 {
		return
	}
	if e, over := l.Add(t, cost); over && l.Mitigate(e, t) {
		l.why = e
	}
}
