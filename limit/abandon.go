package limit

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/async"
)

// MaxAbandoned is how many abandoned requests of a key wait for the origin's answer at a time. A request with several
// keys waits if one of them has fewer.
const MaxAbandoned = 64

// Abandon notes that the client of d has left before the answer, or does not send the rest of its request. It reports
// whether a rule still counts the request by the answer: then the caller must wait for the origin and call Resolve or
// Forsake. If each key already has MaxAbandoned such requests, Abandon counts the request as Forsake does.
func (l *Limiter) Abandon(d *Decision, now time.Time) bool {
	room := false
	l.abandoning.Lock()
	for c := range d.byAnswer {
		room = room || l.abandoned[c.key] < MaxAbandoned
	}
	for c := range d.byAnswer {
		if room {
			l.abandoned[c.key]++
		}
	}
	l.abandoning.Unlock()
	if !room {
		l.countNear(d, now)
	}
	return room
}

// Forsake completes an abandoned request whose answer nobody waits for. It counts the request at now under keys whose
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
	l.abandoning.Lock()
	defer l.abandoning.Unlock()
	for c := range d.byAnswer {
		if l.abandoned[c.key]--; l.abandoned[c.key] == 0 {
			delete(l.abandoned, c.key)
		}
	}
}
