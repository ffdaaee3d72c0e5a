package limit

import (
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
)

// MaxAbandoned is the maximum number of abandoned requests of a key that wait for the origin's answer at a time.
const MaxAbandoned = 64

// An abandonedCount counts the requests that wait for the origin's answer without their clients, by key.
type abandonedCount struct {
	mu    sync.Mutex
	byKey map[counter.Key]int
}

// Abandon notes that the client of d has left before the answer, or does not send the rest of its request. It reports
// whether a rule still counts the request by the answer: then the caller must wait for the origin and call Resolve or
// Forsake. If each key already has MaxAbandoned such requests, Abandon counts the request as Forsake does.
func (l *Limiter) Abandon(d *Decision, now time.Time) bool {
	if !l.abandoned.add(d) {
		l.countNear(d, now)
		return false
	}
	return true
}

// add adds a request if one of its keys has room.
func (a *abandonedCount) add(d *Decision) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	room := false
	for c := range d.byAnswer {
		room = room || a.byKey[c.key] < MaxAbandoned
	}
	for c := range d.byAnswer {
		if room {
			a.byKey[c.key]++
		}
	}
	return room
}

// Forsake completes an abandoned request for whose answer nobody waits. It counts the request at now under keys whose
// estimate exceeds half of a threshold, but not under others, because the answer may not match.
func (l *Limiter) Forsake(d *Decision, now time.Time) {
	l.countNear(d, now)
	l.Resolve(d, 0, nil, now)
}

func (l *Limiter) countNear(d *Decision, now time.Time) {
	var room [4]Quota
	for c := range d.byAnswer {
		if slices.ContainsFunc(l.Remaining(room[:0], c.rule, c.key, async.Passing{Now: now}), func(q Quota) bool {
			return q.Known && 2*q.Remaining < q.Limit.Threshold
		}) {
			l.countAnswer(d, c, c.rule.CostOf(1), now)
		}
	}
}

// Resolve completes an abandoned request: the origin answered with status and fields at now. If status is 0, it did not
// answer, and the request does not count.
func (l *Limiter) Resolve(d *Decision, status int, fields Fields, now time.Time) {
	if status != 0 {
		l.Answered(d, status, fields, now)
	}
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	for c := range d.byAnswer {
		if l.abandoned.byKey[c.key]--; l.abandoned.byKey[c.key] == 0 {
			delete(l.abandoned.byKey, c.key)
		}
	}
}
