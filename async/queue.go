package async

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// QueueOptions configures a Queue. All but Registerer are required.
type QueueOptions[K comparable, V any] struct {
	// Hash spreads keys; clients must not be able to choose its values.
	Hash func(K) uint64

	// Merge merges an offer into the value queued under the same key.
	Merge func(queued *V, offered V)

	// Size returns the size of v. It must not be 0.
	Size func(v *V) uint64

	// Capacity is the maximum number of queued keys.
	Capacity int

	// Interval is the maximum time that an offer waits before it is flushed, so that later
	// offers with the same key can be merged into it.
	Interval time.Duration

	// Registerer registers the queue's metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

// stripes is the number of stripes, which reduce lock contention. Each has a bit in Queue.urgent.
const stripes = 16

// A Queue holds at most one value per key. Offers for a key that is already queued are merged, so
// that a flood from one client takes only one place.
//
// Offer and Len may be called concurrently with any method. Poll and Flush must not overlap.
type Queue[K comparable, V any] struct {
	o       QueueOptions[K, V]
	stripe  [stripes]stripe[K, V]
	wake    chan struct{} // holds at most one
	waiting atomic.Bool   // something was offered since the last flush
	urgent  atomic.Uint32 // bit set of stripes with an urgent offer

	// When to flush everything, when to flush urgent offers, and when those were last flushed. Only
	// for the caller of Poll.
	all, some, last time.Time
}

// NewQueue returns a queue. Only Poll and Flush remove items from it.
func NewQueue[K comparable, V any](o QueueOptions[K, V]) *Queue[K, V] {
	q := &Queue[K, V]{o: o, wake: make(chan struct{}, 1)}
	for i := range q.stripe {
		q.stripe[i].queued = newTable[K, V]((o.Capacity + stripes - 1) / stripes)
		q.stripe[i].spare = newTable[K, V]((o.Capacity + stripes - 1) / stripes)
	}
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_queue_depth",
		Help: "Keys waiting to be counted.",
	}, func() float64 { return float64(q.Len()) })
	return q
}

// Offer queues v under k, or merges it into the value queued there. It returns the size of the value
// queued under k, including v, and before, the size of the value of k that was being flushed when this one
// was queued. ok is false if v was dropped because the queue is full; the caller must count such drops. Offer
// never blocks and never allocates. An urgent offer is flushed immediately, together with the rest of its
// stripe.
func (q *Queue[K, V]) Offer(k K, v V, urgent bool) (size, before uint64, ok bool) {
	h := q.o.Hash(k)
	i := h % stripes
	size, before = q.stripe[i].offer(h, &k, &v, &q.o)
	if size == 0 {
		return 0, 0, false
	}
	if urgent && q.urgent.Or(1<<i)&(1<<i) == 0 || !q.waiting.Load() && q.waiting.CompareAndSwap(false, true) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return size, before, true
}

// Len returns the number of queued keys.
func (q *Queue[K, V]) Len() (n int) {
	for i := range q.stripe {
		s := &q.stripe[i]
		s.mu.Lock()
		n += len(s.queued.items)
		s.mu.Unlock()
	}
	return n
}

// Wake returns a channel that receives a value when Poll should be called earlier than it asked for.
func (q *Queue[K, V]) Wake() <-chan struct{} { return q.wake }

// Poll passes urgent items, and those that have waited for the interval at now, to flush. It returns
// when to call it next, or the zero time if nothing is queued; see also Wake. flush runs in the
// caller's goroutine and must not use the items after it returns.
func (q *Queue[K, V]) Poll(now time.Time, flush func([]Item[K, V])) (next time.Time) {
	// Urgent offers do not wait for the interval, but a client that stays near its threshold
	// must not cause a flush with every request.
	if q.urgent.Load() != 0 && q.some.IsZero() {
		q.some = q.last.Add(q.o.Interval / 8)
	}
	if q.waiting.Load() && q.all.IsZero() {
		q.all = now.Add(q.o.Interval)
	}
	if !q.some.IsZero() && !q.some.After(now) {
		q.some, q.last = time.Time{}, now
		q.flush(q.urgent.Swap(0), flush)
	}
	if !q.all.IsZero() && !q.all.After(now) {
		q.all = time.Time{}
		q.waiting.Store(false)
		q.flush(1<<stripes-1, flush)
	}
	if !q.some.IsZero() && (q.all.IsZero() || q.some.Before(q.all)) {
		return q.some
	}
	return q.all
}

// Flush passes all queued items to flush, in the caller's goroutine, without waiting for the interval.
func (q *Queue[K, V]) Flush(flush func([]Item[K, V])) {
	q.flush(1<<stripes-1, flush)
}

// flush passes the items of the stripes whose bits are set.
func (q *Queue[K, V]) flush(which uint32, flush func([]Item[K, V])) {
	for ; which != 0; which &= which - 1 {
		s := &q.stripe[bits.TrailingZeros32(which)]
		if items := s.take(); len(items) > 0 {
			flush(items)
		}
		s.done(q.o.Hash)
	}
}
