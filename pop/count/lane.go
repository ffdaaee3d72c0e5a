package count

import (
	"time"

	"github.com/edgelimit/edge/counter"
)

// A Shard owns part of a PoP's counters, and the records beside them. It is a
// [counter.Shard], or behaves like one. Its methods may be called concurrently.
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
	Exchange(*counter.Batch) error
}

const (
	// inBatch is the maximum number of keys in a batch: about 5 ms of a memcached's work.
	inBatch = 1024

	// inFlight is how many batches are in flight to a shard at a time, so that it stays busy
	// while the loop handles the answers to one.
	inFlight = 2

	// retryPause is the pause before an unreachable shard that is not yet down is retried.
	retryPause = 20 * time.Millisecond

	// probePause is how often a shard that is down is probed.
	probePause = 100 * time.Millisecond

	// maxStores is the maximum number of records that a batch writes.
	maxStores = 256

	// maxAsk is how many keys are read at a former shard in one batch. Further ones are read
	// with their next count.
	maxAsk = 1 << 14
)

// A lane holds the keys that have work for one shard. Those near their threshold go first, the
// others in order. A key waits once, and is in one batch at a time, so it has one increment in
// flight.
type lane struct {
	shard  Shard
	near   list
	far    list
	ask    *batch    // reads for keys that other shards own now; nil if none
	flying int       // batches in flight
	asking bool      // a batch like ask is in flight
	retry  time.Time // when the shard may be asked again
	ended  bool      // the loop is stopping, and the shard could not be reached
}

func (ln *lane) addr() string { return ln.shard.Addr() }

// waiting returns the number of waiting keys.
func (ln *lane) waiting() int { return ln.near.n + ln.far.n }

// push queues t for the shard, with the keys near their threshold if it is near.
func (ln *lane) push(t *track) {
	to := &ln.far
	if t.near {
		to = &ln.near
	}
	if t.in != to {
		t.leave()
		to.push(t)
	}
}

// pop removes and returns the next key, nil if none waits.
func (ln *lane) pop() *track {
	t := ln.near.head
	if t == nil {
		t = ln.far.head
	}
	if t != nil {
		t.leave()
	}
	return t
}

// A list is a queue of keys. A key is in one list at most.
type list struct {
	head, tail *track
	n          int
}

func (l *list) push(t *track) {
	t.in, t.prev, t.next = l, l.tail, nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
	l.n++
}

// leave removes t from its list.
func (t *track) leave() {
	l := t.in
	if l == nil {
		return
	}
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
	t.in, t.prev, t.next = nil, nil, nil
	l.n--
}

// A batch is the operations of one exchange with a shard, and the keys that they are for.
type batch struct {
	counter.Batch
	lane   *lane
	former bool // it reads for keys that other shards own now
	begun  time.Time
	err    error

	tracks []*track
	sends  []sent // of Increments
	reads  []read // of Reads
	stores []*track
}

// A sent is an increment of a key.
type sent struct {
	*track
	send
}

// A read is a counter or the record of a key.
type read struct {
	*track
	slot
	record bool
}

func (b *batch) reset() {
	b.Reset()
	clear(b.tracks)
	clear(b.sends)
	clear(b.reads)
	clear(b.stores)
	b.tracks, b.sends, b.reads, b.stores = b.tracks[:0], b.sends[:0], b.reads[:0], b.stores[:0]
	b.former, b.err = false, nil
}
