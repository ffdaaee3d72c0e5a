package load

import (
	"sync"
	"sync/atomic"
	"time"
)

// returns lets some of the clients that are refused, the first and then each fifth, be silent
// until their Retry-After is over, and come back then.
type returns struct {
	run     *run
	enabled bool
	holding atomic.Int32 // clients that are silent
	mu      sync.Mutex   // guards what follows
	clients map[uint64]*returning
	held    uint64 // requests that were not sent for this
	timers  sync.WaitGroup
}

// A returning is a client that may come back.
type returning struct {
	first int64 // when it was refused first, in microseconds
	until int64 // when it comes back; 0 as long as it is not silent
	done  bool
}

const (
	mostReturning = 5000 // clients that are known to be refused
	oneReturns    = 5    // one of this many comes back

	// A client goes on for a while when it is refused, since others are to be seen
	// refusing it too.
	returnAfter = 1_000_000 // microseconds

	// What is told as whole seconds is rounded up by the node, and read here a little
	// later.
	returnMargin = 50 * time.Millisecond
)

// holds reports whether a request is not sent because its client is silent.
func (t *returns) holds(q *Request) bool {
	if q.probe || t.holding.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[q.Client]
	if c == nil || c.until == 0 {
		return false
	}
	t.held++
	return true
}

// refused notes that a client was told to come back later.
func (t *returns) refused(q *Request, r *record) {
	if !t.enabled {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[q.Client]
	if c == nil {
		if len(t.clients) == mostReturning {
			return
		}
		c = &returning{first: r.sent, done: len(t.clients)%oneReturns != 0}
		t.clients[q.Client] = c
	}
	if c.done || c.until != 0 || r.sent-c.first < returnAfter {
		return
	}
	wait := time.Duration(r.retry)*time.Second + returnMargin
	back := time.Duration(r.done)*time.Microsecond + wait
	if back >= t.run.o.Duration {
		return
	}
	c.until = back.Microseconds()
	t.holding.Add(1)
	probe := *q
	probe.Due, probe.probe = back, true
	t.timers.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-t.run.over.Done():
		case <-timer.C:
			t.run.route(&probe).push(&probe)
		}
		t.mu.Lock()
		c.until, c.done = 0, true
		t.mu.Unlock()
		t.holding.Add(-1)
	})
}
