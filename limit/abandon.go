package limit

import (
	"sync"
	"time"

	"github.com/edgelimit/edge/counter"
)

// MaxAbandoned is the maximum number of requests of a key that may continue at a time after their clients have left.
const MaxAbandoned = 8

// abandoned counts the requests that continue without their clients, by key.
type abandoned struct {
	mu    sync.Mutex
	byKey map[counter.Key]int
}

// CountsAnswer reports whether a rule counts the request by the origin's answer.
func (d *Decision) CountsAnswer() bool {
	if d.Verdict.Refused() {
		return false
	}
	for i := range d.n {
		if d.at(i).rule.CountsAnswer() {
			return true
		}
	}
	return false
}

// Abandon must be called when the client of d stops waiting for the answer. It reports whether a
// rule still counts the request by the answer: then the caller waits for the origin and calls
// Resolve. If a key already has MaxAbandoned such requests, Abandon counts the request at now.
func (l *Limiter) Abandon(d *Decision, now time.Time) bool {
	waiting := *d
	waiting.n, waiting.more = 0, nil
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	for i := range d.n {
		c := d.at(i)
		switch {
		case !c.rule.CountsAnswer():
		case l.abandoned.byKey[c.key] < MaxAbandoned:
			l.abandoned.byKey[c.key]++
			waiting.add(c)
		default:
			l.countAnswer(d, c, c.rule.CostOf(1), now)
		}
	}
	*d = waiting
	return d.n > 0
}

// Resolve completes an abandoned request: the origin answered with status and fields at now, or not
// at all if status is 0.
func (l *Limiter) Resolve(d *Decision, status int, fields Fields, now time.Time) {
	if status != 0 {
		l.Answered(d, status, fields, now)
	}
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	for i := range d.n {
		key := d.at(i).key
		if l.abandoned.byKey[key]--; l.abandoned.byKey[key] == 0 {
			delete(l.abandoned.byKey, key)
		}
	}
}
