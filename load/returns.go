package load

import (
	"sync"
	"sync/atomic"
	"time"
)

// returns silences every fifth refused client, beginning with the first, until its Retry-After has elapsed.
// Then it lets it return, so that the judge can check Retry-After.
type returns struct {
	run     *run
	holding atomic.Int32 // number of silent clients
	mu      sync.Mutex   // guards the following
	clients map[uint64]*refusedClient
	held    uint64 // requests not sent because their client was silent
	timers  sync.WaitGroup
}

// A refusedClient is the state of a refused client.
type refusedClient struct {
	first  int64 // when it was first refused, in microseconds
	silent bool
	done   bool // it is or was silent, or it was not selected to be
}

const (
	maxReturning = 5000 // maximum number of refused clients to remember
	oneReturns   = 5    // one in this many returns

	// A refused client continues for a while, to show that the other nodes refuse it too.
	returnAfter = 1_000_000 // microseconds

	// Clients return a little after Retry-After, which nodes round up to whole seconds.
	returnMargin = 50 * time.Millisecond
)

// holds reports whether a request must not be sent because its client is silent.
func (t *returns) holds(q *Request) bool {
	if t.holding.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[q.Client]
	if c == nil || !c.silent {
		return false
	}
	t.held++
	return true
}

// refused records that a client was told to come back later.
func (t *returns) refused(q *Request, r *record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[q.Client]
	if c == nil {
		if len(t.clients) == maxReturning {
			return
		}
		c = &refusedClient{first: r.sent, done: len(t.clients)%oneReturns != 0}
		t.clients[q.Client] = c
	}
	if c.done || r.sent-c.first < returnAfter {
		return
	}
	back := time.Duration(r.done)*time.Microsecond + time.Duration(r.retry)*time.Second + returnMargin
	if back >= t.run.o.Duration {
		return
	}
	c.silent, c.done = true, true
	t.holding.Add(1)
	probe := *q
	probe.Due = back
	t.timers.Go(func() {
		returns := t.run.sleep(back)
		t.mu.Lock()
		c.silent = false
		t.mu.Unlock()
		t.holding.Add(-1)
		if returns {
			t.run.route(&probe).push(&probe)
		}
	})
}
