package async

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// stripes is the number of stripes, which reduce lock contention. Each has a bit in queue.urgent.
const stripes = 16

// A queue holds at most one item for each key, tick and generation. Further offers are merged into it, so that a flood
// from one client takes only one place.
//
// offer and len may be called concurrently with any method. poll and flush must not overlap.
type queue struct {
	interval time.Duration // maximum time that an offer waits for others to be merged into it
	stripe   [stripes]stripe
	wake     chan struct{} // capacity 1; receives a value when poll must be called earlier than it asked for
	waiting  atomic.Bool   // something was offered since the last flush
	urgent   atomic.Uint32 // bit set of stripes with an urgent offer

	// When to flush everything, when to flush urgent offers, and when those were last flushed. Only the caller of poll
	// uses them.
	all, some, last time.Time
}

// newQueue returns a queue with room for capacity items.
func newQueue(capacity int, interval time.Duration, reg prometheus.Registerer) *queue {
	q := &queue{interval: interval, wake: make(chan struct{}, 1)}
	for i := range q.stripe {
		q.stripe[i].queued = newTable((capacity + stripes - 1) / stripes)
		q.stripe[i].spare = newTable((capacity + stripes - 1) / stripes)
	}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_queue_depth",
		Help: "Keys waiting to be counted.",
	}, func() float64 { return float64(q.len()) })
	return q
}

// offer queues an item, or merges it into the one that is queued for the same requests, and calls look. If look returns
// true, they are urgent, and are flushed immediately with the rest of their stripe. Until look returns, nothing is
// queued in the stripe or taken from it. ok is false if the requests were dropped because the queue is full; the caller
// must count such drops. offer never blocks and never allocates.
func (q *queue) offer(more *item, look func(*stripe) (urgent bool)) (ok bool) {
	i := more.hash() % stripes
	s := &q.stripe[i]
	s.mu.Lock()
	ok = s.queued.add(more)
	urgent := ok && look(s)
	s.mu.Unlock()
	if !ok {
		return false
	}
	if urgent && q.urgent.Or(1<<i)&(1<<i) == 0 || !q.waiting.Load() && q.waiting.CompareAndSwap(false, true) {
		notify(q.wake)
	}
	return true
}

// len returns the number of queued items.
func (q *queue) len() (n int) {
	for i := range q.stripe {
		s := &q.stripe[i]
		s.mu.Lock()
		n += len(s.queued.items)
		s.mu.Unlock()
	}
	return n
}

// poll passes urgent items, and those that have waited for the interval at now, to flush. It returns
// when to call it next, or the zero time if nothing is queued; see also wake. flush runs in the
// caller's goroutine and must not use the items after it returns.
func (q *queue) poll(now time.Time, flush func([]item)) (next time.Time) {
	// Urgent offers do not wait for the interval, but a client that stays near its threshold
	// must not cause a flush with every request.
	if q.urgent.Load() != 0 && q.some.IsZero() {
		q.some = q.last.Add(q.interval / 8)
	}
	if q.waiting.Load() && q.all.IsZero() {
		q.all = now.Add(q.interval)
	}
	if !q.some.IsZero() && !q.some.After(now) {
		q.some, q.last = time.Time{}, now
		q.flushSome(q.urgent.Swap(0), flush)
	}
	if !q.all.IsZero() && !q.all.After(now) {
		q.all = time.Time{}
		q.waiting.Store(false)
		q.flush(flush)
	}
	return earlier(q.all, q.some)
}

// flush passes all queued items to flush, in the caller's goroutine, without waiting for the interval.
func (q *queue) flush(flush func([]item)) { q.flushSome(1<<stripes-1, flush) }

// flushSome passes the items of the stripes whose bits are set.
func (q *queue) flushSome(which uint32, flush func([]item)) {
	for ; which != 0; which &= which - 1 {
		s := &q.stripe[bits.TrailingZeros32(which)]
		s.mu.Lock()
		s.queued, s.spare, s.flushing = s.spare, s.queued, true
		s.mu.Unlock()
		if items := s.spare.items; len(items) > 0 {
			flush(items)
		}
		s.mu.Lock()
		s.flushing = false
		s.mu.Unlock()
		s.spare.reset()
	}
}

// hash spreads keys over stripes and tables. Clients cannot choose its values.
func (it *item) hash() uint64 { return binary.LittleEndian.Uint64(it.key[:]) }

// same reports whether the requests of both items are counted together.
func (it *item) same(o *item) bool {
	return it.key == o.key && it.tick == o.tick && it.generation == o.generation
}

// merge merges an offer of the same requests into it.
func (it *item) merge(more *item) {
	it.rule, it.sample = more.rule, more.sample
	it.n += min(more.n, ^it.n)
	it.clients.Add(more.clients)
}

// A stripe is a part of a queue with its own lock. Offers go to one table while the items of the
// other are flushed.
type stripe struct {
	mu       sync.Mutex
	queued   table // guarded by mu
	spare    table // changed by poll and flush only, and not while flushing is set
	flushing bool  // the items of spare are being flushed; guarded by mu

	_ [64]byte // keeps the locks of adjacent stripes on different cache lines
}

// A table is a hash table of fixed size whose items are stored densely, in insertion order. Unlike
// a Go map it never grows, so adding never allocates.
type table struct {
	items []item   // up to its capacity
	index []uint32 // index in items + 1, at the hash or after it; 0 if empty
}

func newTable(capacity int) table {
	return table{
		items: make([]item, 0, capacity),
		index: make([]uint32, 1<<bits.Len(uint(2*capacity))), // at most half full
	}
}

// add adds an item, or merges it into the one for the same requests. ok is false if there is no room.
func (t *table) add(more *item) (ok bool) {
	mask := uint64(len(t.index) - 1)
	i := more.hash() >> 32 & mask
	for ; t.index[i] != 0; i = (i + 1) & mask {
		if entry := &t.items[t.index[i]-1]; entry.same(more) {
			entry.merge(more)
			return true
		}
	}
	if len(t.items) == cap(t.items) {
		return false
	}
	t.items = append(t.items, *more)
	t.index[i] = uint32(len(t.items))
	return true
}

// unseen appends the requests of the key of more, of any tick, to dst, unless the key's track counts them.
func (t *table) unseen(dst []arrivals, more *item) []arrivals {
	mask := uint64(len(t.index) - 1)
	for i := more.hash() >> 32 & mask; t.index[i] != 0; i = (i + 1) & mask {
		entry := &t.items[t.index[i]-1]
		if entry.key == more.key && entry.generation == more.generation && !entry.added {
			dst = append(dst, arrivals{entry.tick, entry.n})
		}
	}
	return dst
}

// reset empties t and drops references held by its items.
func (t *table) reset() {
	if len(t.items) > len(t.index)/32 {
		clear(t.index)
	} else {
		mask := uint64(len(t.index) - 1)
		for at := range t.items {
			i := t.items[at].hash() >> 32 & mask
			for t.index[i] != uint32(at+1) {
				i = (i + 1) & mask
			}
			t.index[i] = 0
		}
	}
	clear(t.items)
	t.items = t.items[:0]
}
