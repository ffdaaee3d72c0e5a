package limit

import "time"

// Flush counts what was offered since the last call, and Step does what else is due, each in
// the caller's goroutine. Together they are [Limiter.Run] for a caller that goes through time
// by itself, such as a simulation, whose clock is Options.Now and whose shards answer at
// once: what Run leaves to goroutines and timers is done when they return, by the same code.
// They may be called neither at once nor beside Run, and with SetOut but not with SetShards
// between them.
func (l *Limiter) Flush() {
	l.queue.Flush(l.flush)
	l.serveReady()
}

// Step ends mitigations and reads counters once more whose time has come, and tries again
// what shards did not take. It returns when there will be more to do, zero if nothing is known
// of. See [Limiter.Flush].
func (l *Limiter) Step() (next time.Time) {
	now := l.o.Now()
	for _, ln := range l.lanes {
		ln.tryAgain(l.watch)
	}
	l.serveReady()
	due, wait := l.later.due(now)
	for ; len(due) > 0; due, wait = l.later.due(now) {
		for _, t := range due {
			l.dispatch(t)
		}
		l.serveReady()
	}
	next = l.o.Table.Expire(now, l.ended)
	if wait > 0 && (next.IsZero() || now.Add(wait).Before(next)) {
		next = now.Add(wait)
	}
	return next
}

// serveReady does the work of all lanes until none is left.
func (l *Limiter) serveReady() {
	var j job
	for any := true; any; {
		any = false
		for _, ln := range l.lanes {
			for t, ok := ln.poll(); ok; t, ok = ln.poll() {
				j = l.serve(ln, t, j)
				any = true // it may have gone to another lane
			}
		}
	}
}
