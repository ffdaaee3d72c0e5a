package async

import (
	"cmp"
	"container/heap"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
)

// A Shard owns part of a PoP's counters, and the records alongside them. It is a
// [memcached.Client], or behaves like one. Its methods may be called concurrently.
type Shard interface {
	// Addr returns the shard's address, which places keys: it must be the same on every node.
	Addr() string

	// Down reports whether the shard gets only occasional probes because it failed or is
	// slow. The request path calls it, so it must not block.
	Down() bool

	// Available reports whether the shard accepts requests now.
	Available() bool

	// Exchange sends a batch to the shard and sets the outcomes. It blocks for a round trip.
	// An empty batch probes whether the shard answers.
	Exchange(*memcached.Batch) error
}

// A lane holds the keys that have work for one shard. Keys near their threshold go first; otherwise
// order is kept. A key is in at most one queue and one batch at a time, so each of its counters has at
// most one increment in flight.
type lane struct {
	shard   Shard
	queues  [far + 1]list // waiting keys, by place
	waiting int           // number of waiting keys
	flying  int           // batches in flight
	retry   time.Time     // when the shard may be asked again
	ended   bool          // the loop is stopping, and the shard could not be reached

	waits  atomic.Int64 // number of waiting keys, as the loop last saw it
	oldest atomic.Int64 // when their oldest request arrived, in microseconds; 0 if no key waits
}

func (ln *lane) addr() string { return ln.shard.Addr() }

// A place is where a key waits for its shard: in one of the queues of a lane, in a batch, or nowhere.
type place uint8

const (
	nowhere place = iota
	near
	far
	inFlight
	evicted // for ever
)

// A list is a linked list of keys. A key is in at most one list.
type list struct{ head, tail *track }

// push queues t, among the keys near their threshold if t is near. It moves t if t is in another queue of ln, and does
// nothing if t is in flight or evicted.
func (ln *lane) push(t *track) {
	to := far
	if t.near {
		to = near
	}
	if t.waits == to || t.waits >= inFlight {
		return
	}
	ln.leave(t)
	l := &ln.queues[to]
	if t.waits, t.prev = to, l.tail; t.prev == nil {
		l.head = t
	} else {
		t.prev.next = t
	}
	l.tail = t
	ln.waiting++
}

// pop removes and returns the next key, or nil if none waits.
func (ln *lane) pop() *track {
	t := cmp.Or(ln.queues[near].head, ln.queues[far].head)
	if t != nil {
		ln.leave(t)
	}
	return t
}

// leave removes t from its queue, if it is in one.
func (ln *lane) leave(t *track) {
	if t.waits != near && t.waits != far {
		return
	}
	l := &ln.queues[t.waits]
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.waits, t.prev, t.next = nowhere, nil, nil
	ln.waiting--
}

// later is a heap of keys, ordered by when a counter must be read again or held counts must be sent.
type later []wait

type wait struct {
	key   counter.Key // rather than its track, which may be evicted
	until time.Time
}

func (l later) Len() int           { return len(l) }
func (l later) Less(i, j int) bool { return l[i].until.Before(l[j].until) }
func (l later) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *later) Push(x any)        { *l = append(*l, x.(wait)) }
func (l *later) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	*l = (*l)[:last]
	return x
}

// maxLater is the maximum number of keys that wait. Further ones are read with their next count, and counted at
// once.
const maxLater = 1 << 16

func (l *later) add(t *track, until time.Time) bool {
	room := len(*l) < maxLater
	if room {
		heap.Push(l, wait{t.key, until})
	}
	return room
}
