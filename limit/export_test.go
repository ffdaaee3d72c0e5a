package limit

import "github.com/edgelimit/edge/limit/decision"

// LogTo has l log its decisions, as if New had been given decisions.
func (l *Limiter) LogTo(decisions *decision.Log) { l.decisions = decisions }
