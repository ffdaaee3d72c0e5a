package load

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// next returns the next request of Options.Source, whether or not it is due, or false if there will be no more.
func (r *run) next(q *Request) bool {
	if r.over.Err() != nil || !r.o.Source.Next(q) || q.Due >= r.o.Duration {
		return false
	}
	if r.full = r.made == r.o.Requests; r.full {
		return false
	}
	r.made++
	if q.Look.number == 0 {
		q.Look.Host = cmp.Or(r.o.host, q.Look.Host)
		r.looks = append(r.looks, q.Look)
		q.Look.number = uint32(len(r.looks))
	}
	return true
}

// A dueQueue holds requests that are due or, in a closed loop, that are next. It is shared by the connections that may
// send them.
type dueQueue struct {
	run      *run
	target   int        // index of the only target of its connections; any if negative
	spare    int        // number of connections that may still be opened
	http2    *http2Conn // the latest, guarded by run.mu
	mu       sync.Mutex
	wake     sync.Cond // there is a request, or there will be no more
	room     sync.Cond // there is room, or there will be no more requests
	requests []Request
	first    int  // index of the oldest request; those before it are taken
	done     bool // there will be no more requests
}

// maxDue is the maximum number of requests in a queue in a closed loop.
const maxDue = 256

// addQueue adds a queue for a number of connections.
func (r *run) addQueue(connections, target int) {
	l := &dueQueue{run: r, target: target, spare: connections * r.o.Streams}
	l.wake.L, l.room.L = &l.mu, &l.mu
	r.queues = append(r.queues, l)
}

// push adds a request, and opens a connection for it while more are allowed, so that all
// connections are used in turn. In a closed loop, it waits until there is room.
func (l *dueQueue) push(r *Request) {
	l.mu.Lock()
	for l.run.o.ClosedLoop && len(l.requests)-l.first == maxDue && !l.done {
		l.room.Wait()
	}
	if l.done {
		l.mu.Unlock()
		return
	}
	if 2*l.first >= len(l.requests) { // most are taken, so moving the others is cheap
		l.requests, l.first = slices.Delete(l.requests, 0, l.first), 0
	}
	l.requests = append(l.requests, *r)
	another := l.spare > 0
	if another {
		l.spare--
	}
	l.mu.Unlock()
	if another {
		l.run.open(l)
	} else {
		l.wake.Signal()
	}
}

// next waits for the next request to send, and returns false if there will be no more.
func (l *dueQueue) next(r *Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.first == len(l.requests) || l.run.over.Err() != nil {
		if l.done {
			return false
		}
		l.wake.Wait()
	}
	*r = l.requests[l.first]
	l.first++
	l.room.Signal()
	return true
}

// finish announces that there will be no more requests.
func (l *dueQueue) finish() {
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	l.wake.Broadcast()
	l.room.Broadcast()
}

// left returns the number of requests in the queue.
func (l *dueQueue) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests) - l.first
}

// lateBy is the delay after its due time from which a request counts as sent late.
const lateBy = 10 * time.Millisecond

// dispatch pushes each request to its queue when it is due or, in a closed loop, when there is room. It ends when there
// are no more or the run is over.
func (r *run) dispatch() {
	defer r.finish()
	var q Request
	for r.next(&q) {
		if !r.o.ClosedLoop {
			if !r.sleep(q.Due) {
				if q.Due <= time.Since(r.began) {
					r.unsent.Add(1)
				}
				return
			}
			if time.Since(r.began)-q.Due > lateBy {
				r.late.Add(1)
			}
		}
		r.route(&q).push(&q)
	}
}

func (r *run) route(q *Request) *dueQueue {
	return r.queues[mix.Scramble(q.Client)%uint64(len(r.queues))]
}

// sleep waits until the given time since the start of the run, and returns false if the run is over
// before then.
func (r *run) sleep(until time.Duration) bool {
	for {
		wait := until - time.Since(r.began)
		switch {
		case r.over.Err() != nil:
			return false
		case wait <= 0:
			return true
		case wait > 2*time.Millisecond:
			select {
			case <-r.over.Done():
			case <-time.After(wait - time.Millisecond):
			}
		default:
			r.nap(wait)
		}
	}
}
