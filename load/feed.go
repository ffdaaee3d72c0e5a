package load

import (
	"sync"
	"time"
)

// A feed tells connections what to send.
type feed interface {
	// next waits until there is something for c to send, and reports false when there
	// never will be.
	next(c *conn, r *Request) bool
}

// A drawn is a source that several goroutines draw from.
type drawn struct {
	run    *run
	mu     sync.Mutex
	source Source
	made   uint64
	ended  bool
	full   bool // it has more than Options.Requests
}

// next draws the next request. Whether it is due is not its concern.
func (d *drawn) next(_ *conn, r *Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.run.over.Err() != nil || !d.source.Next(r) || r.Due >= d.run.o.Duration {
		d.ended = true
		return false
	}
	if d.made == d.run.o.Requests {
		d.ended, d.full = true, true
		return false
	}
	d.made++
	if r.Look.number == 0 {
		d.run.looks = append(d.run.looks, r.Look)
		r.Look.number = uint32(len(d.run.looks))
	}
	return true
}

// A lane is requests that are due, for the connections that may send them.
type lane struct {
	run      *run
	open     func(*lane) // opens another connection for the lane
	spare    int         // how many more may be opened
	mu       sync.Mutex
	wake     sync.Cond // there is a request, or no more will come
	room     sync.Cond // there are few requests, or no more will come
	requests []Request // a ring; its length is a power of two
	first    int
	used     int
	no       bool // no more will come
}

func newLane(r *run, connections int, open func(*lane)) *lane {
	l := &lane{run: r, open: open, spare: connections, requests: make([]Request, 16)}
	l.wake.L, l.room.L = &l.mu, &l.mu
	return l
}

// push adds a request. As long as connections may be opened, one is opened for it: so all of
// them are used in turn. A closed loop waits until there is room.
func (l *lane) push(r *Request) {
	l.mu.Lock()
	for l.run.o.ClosedLoop && l.used == len(l.requests) && !l.no {
		l.room.Wait()
	}
	if l.no {
		l.mu.Unlock()
		return
	}
	if l.used == len(l.requests) {
		more := make([]Request, 2*len(l.requests))
		n := copy(more, l.requests[l.first:])
		copy(more[n:], l.requests[:l.first])
		l.requests, l.first = more, 0
	}
	l.requests[(l.first+l.used)&(len(l.requests)-1)] = *r
	l.used++
	another := l.spare > 0
	if another {
		l.spare--
	}
	l.mu.Unlock()
	if another {
		l.open(l)
	} else {
		l.wake.Signal()
	}
}

func (l *lane) next(_ *conn, r *Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.used == 0 || l.run.over.Err() != nil {
		if l.no {
			return false
		}
		l.wake.Wait()
	}
	*r = l.requests[l.first]
	l.first = (l.first + 1) & (len(l.requests) - 1)
	l.used--
	l.room.Signal()
	return true
}

// finish says that no more will come.
func (l *lane) finish() {
	l.mu.Lock()
	l.no = true
	l.mu.Unlock()
	l.wake.Broadcast()
	l.room.Broadcast()
}

// left returns how many requests are in the lane.
func (l *lane) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// lateBy is from when on a request counts as sent late.
const lateBy = 10 * time.Millisecond

// dispatch gives each request to its lane when it is due, until there is none left or the run
// is over.
func (r *run) dispatch() {
	defer r.finish()
	var q Request
	for r.source.next(nil, &q) {
		if !r.sleep(q.Due) {
			if q.Due <= time.Since(r.began) {
				r.unsent.Add(1)
			}
			return
		}
		if time.Since(r.began)-q.Due > lateBy {
			r.late.Add(1)
		}
		r.route(&q).push(&q)
	}
}

// route returns the lane of a request.
func (r *run) route(q *Request) *lane {
	if len(r.lanes) == 1 {
		return r.lanes[0]
	}
	return r.lanes[scramble(q.Client)%uint64(len(r.lanes))]
}

// scramble returns a number that looks random, another one for each n (SplitMix64).
func scramble(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// sleep waits until a time since the beginning, and reports false if the run is over before.
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
			r.o.nap(wait)
		}
	}
}
