package count

import (
	"time"

	"github.com/edgelimit/edge/counter"
)

// A Shard owns part of a PoP's counters, and the records beside them. It is a
// [counter.Shard], or behaves like one. Its methods may be called concurrently.
type Shard interface {
	// Addr names the shard. Every node names it alike, since it places keys.
	Addr() string

	// Down reports whether the shard is left alone but for a probe now and then, since it
	// failed or is slow. The request path calls it: it must not wait.
	Down() bool

	// Available reports whether the shard would be asked now.
	Available() bool

	// Exchange has the shard do what a batch asks for, and sets the outcomes. It blocks for
	// a round trip. An empty batch finds out whether the shard answers.
	Exchange(*counter.Batch) error
}

const (
	// inBatch is how many keys a batch has at most: about 5 ms of a memcached's work.
	inBatch = 1024

	// inFlight is how many batches are on their way to a shard at a time, so that it has
	// something to do while the answers of one are taken in.
	inFlight = 2

	// retryPause is how long a shard that could not be reached is left alone, before it counts
	// as down.
	retryPause = 20 * time.Millisecond

	// probePause is how often a shard that is down is looked at.
	probePause = 100 * time.Millisecond

	// maxStores is how many records a batch writes at most.
	maxStores = 256

	// maxAsk is how many keys are read at a former shard in one batch. What exceeds it is read
	// with the key's next count.
	maxAsk = 1 << 14
)

// A lane leads to one shard: the keys that have work for it. Those that are near their
// threshold go first, the others in their order. A key waits once, and is in one batch at a
// time, so that it has one increment in flight.
type lane struct {
	shard  Shard
	near   list
	far    list
	ask    *batch    // reads for keys that belong to other shards now; nil if there are none
	flying int       // batches on their way
	asking bool      // one like ask is on its way
	retry  time.Time // when the shard may be asked again
	ended  bool      // the loop ends, and the shard could not be reached
}

func (ln *lane) addr() string { return ln.shard.Addr() }

// waiting returns how many keys wait.
func (ln *lane) waiting() int { return ln.near.n + ln.far.n }

// push has t wait for the shard, among those that are near if it is.
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

// pop returns the key whose turn it is, nil if none waits.
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

// leave takes t out of the list that it is in.
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

// A batch is what a shard is asked in one exchange, with what the answers are for.
type batch struct {
	counter.Batch
	lane   *lane
	former bool // it reads for keys that belong to other shards now
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
