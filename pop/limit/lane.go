package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minLaneSize is how many keys wait for one shard at least, and how many are parked.
	// There is room for all keys that are tracked. What does not fit keeps its counts
	// until its next request, or until it is forgotten.
	minLaneSize = 1 << 14

	// retryPause is how long keys are parked that their shard did not take.
	retryPause = 100 * time.Millisecond
)

// A lane leads to one shard: the keys that have work for it, in their order. A key is in
// its lane once at most, so that it has one increment in flight.
type lane struct {
	shard Shard
	size  int           // how many keys wait at most, and how many are parked
	down  atomic.Bool   // the shard was seen down
	wake  chan struct{} // holds at most one: something was parked, or the shard is down
	ended chan struct{} // closed by close

	mu     sync.Mutex // guards what follows
	more   sync.Cond  // on mu: ready is not empty, or closed
	ready  []*track
	parked []*track
	closed bool // nothing enters any more
}

// newLane returns the lane of a shard. That of none only parks.
func newLane(s Shard, size int) *lane {
	ln := &lane{shard: s, size: size, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	ln.more.L = &ln.mu
	return ln
}

// enter queues t, which is busy, and reports whether there was room.
func (ln *lane) enter(t *track) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed || len(ln.ready) >= ln.size {
		return false
	}
	ln.ready = append(ln.ready, t)
	ln.more.Signal()
	return true
}

// take returns the next key, waiting for it. ok is false when the lane is closed and
// empty.
func (ln *lane) take() (t *track, ok bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for len(ln.ready) == 0 {
		if ln.closed {
			return nil, false
		}
		ln.more.Wait()
	}
	return ln.firstLocked(), true
}

// poll returns the next key, if there is one.
func (ln *lane) poll() (t *track, ok bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if len(ln.ready) == 0 {
		return nil, false
	}
	return ln.firstLocked(), true
}

// firstLocked takes the next key of those that are ready. mu is held.
func (ln *lane) firstLocked() *track {
	t := ln.ready[0]
	ln.ready[0] = nil
	ln.ready = ln.ready[1:]
	return t
}

// park keeps t, which is busy, to be tried again, and reports whether there was room.
func (ln *lane) park(t *track) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed || len(ln.parked) >= ln.size {
		return false
	}
	ln.parked = append(ln.parked, t)
	ln.rouse()
	return true
}

// rouse lets retry look whether there is something to do.
func (ln *lane) rouse() {
	select {
	case ln.wake <- struct{}{}:
	default:
	}
}

// retry brings parked keys back when the shard may take them, until ctx is done or the
// lane is closed. While the shard is down it probes it, since no request may come to do
// so, and calls probed. It sleeps while there is nothing to do.
func (ln *lane) retry(ctx context.Context, probed func(*lane)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	armed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ln.ended:
			return
		case <-ln.wake:
			if !armed {
				armed = true
				timer.Reset(retryPause)
			}
			continue
		case <-timer.C:
		}
		if armed = ln.tryAgain(probed); armed {
			timer.Reset(retryPause)
		}
	}
}

// tryAgain does once what retry does, and reports whether it is to be done again.
func (ln *lane) tryAgain(probed func(*lane)) bool {
	if ln.shard.Down() && ln.shard.Available() {
		_ = ln.shard.Probe() // the breaker takes note
		probed(ln)
	}
	return ln.unpark() > 0 || ln.shard.Down()
}

// unpark queues what is parked, if the shard may take it, and returns how many keys
// stay.
func (ln *lane) unpark() int {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.shard.Available() {
		n := min(len(ln.parked), ln.size-len(ln.ready))
		ln.ready = append(ln.ready, ln.parked[:n]...)
		ln.parked = append(ln.parked[:0], ln.parked[n:]...)
		ln.more.Broadcast()
	}
	return len(ln.parked)
}

// wakeAll queues all that is parked, whatever the shard: it may go elsewhere now.
func (ln *lane) wakeAll() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.wakeAllLocked()
}

func (ln *lane) wakeAllLocked() {
	ln.ready = append(ln.ready, ln.parked...)
	ln.parked = nil
	ln.more.Broadcast()
}

// close lets take end when the lane is empty. Parked keys come once more.
func (ln *lane) close() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed {
		return
	}
	ln.wakeAllLocked()
	ln.closed = true
	close(ln.ended)
}

// hasEnded reports whether close was called.
func (ln *lane) hasEnded() bool {
	select {
	case <-ln.ended:
		return true
	default:
		return false
	}
}

// discard empties the lane and returns what was in it.
func (ln *lane) discard() []*track {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	left := append(ln.ready, ln.parked...)
	ln.ready, ln.parked = nil, nil
	return left
}
