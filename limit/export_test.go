package limit

import (
	"time"

	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// LogTo makes l log its decisions, as if New had been given decisions.
func (l *Limiter) LogTo(decisions *decision.Log) { l.decisions = decisions }

// Logged returns the keys of a request that the decision log would get.
func (l *Limiter) Logged(req *rule.Request, now time.Time) []decision.Key {
	d := Decision{decided: now.UnixMicro()}
	l.look(&d, l.Rules(), req, now)
	if d.logged == nil {
		return nil
	}
	return d.logged.Keys
}

// Abandoned returns the number of keys with abandoned requests that wait for the origin's answer.
func (l *Limiter) Abandoned() int {
	l.abandoning.Lock()
	defer l.abandoning.Unlock()
	return len(l.abandoned)
}
