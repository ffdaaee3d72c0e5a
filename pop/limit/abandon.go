package limit

import (
	"sync"
	"time"

	"github.com/edgelimit/edge/counter"
)

// MostAbandoned is how many requests of a key may go on without their clients at once.
const MostAbandoned = 8

// abandoned counts the requests by key that go on without their clients.
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
		if d.at(i).rule.Statuses != nil {
			return true
		}
	}
	return false
}

// Abandon is told that the client of d does not wait for the answer any more. It reports
// whether a rule still counts the request by the answer: then the caller lets the origin
// answer, and calls Resolve. For keys with MostAbandoned such requests it counts the request
// at once, at now, if the client sent it whole.
func (l *Limiter) Abandon(d *Decision, whole bool, now time.Time) bool {
	waiting := *d
	waiting.n, waiting.more = 0, nil
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	for i := range d.n {
		c := d.at(i)
		switch {
		case c.rule.Statuses == nil:
		case l.abandoned.byKey[c.key] < MostAbandoned:
			l.abandoned.byKey[c.key]++
			waiting.add(c)
		case whole:
			l.Offer(c.rule, c.key, c.generation, d.sample, now)
		}
	}
	*d = waiting
	return d.n > 0
}

// Resolve ends what Abandon began: the origin answered with status at now, or with none if
// status is 0.
func (l *Limiter) Resolve(d *Decision, status int, now time.Time) {
	l.Answered(d, status, now)
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	for i := range d.n {
		key := d.at(i).key
		if l.abandoned.byKey[key]--; l.abandoned.byKey[key] == 0 {
			delete(l.abandoned.byKey, key)
		}
	}
}
