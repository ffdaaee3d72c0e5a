package async

import (
	"math/bits"
	"sync"
)

// An Item is a key and the merged offers for it.
type Item[K comparable, V any] struct {
	Key   K
	Value V

	before uint64 // size of the value of the same key that was being flushed when this one was queued
}

// A stripe is a part of a queue with its own lock. Offers go to one table while the items of the
// other are flushed.
type stripe[K comparable, V any] struct {
	mu       sync.Mutex
	queued   table[K, V] // guarded by mu
	spare    table[K, V] // changed by Poll and Flush only, and not while flushing is set
	flushing bool        // the items of spare are being flushed; guarded by mu

	_ [64]byte // keeps the locks of adjacent stripes on different cache lines
}

// offer returns the size of the value under k, including v, and that of the one that was being flushed when k was
// queued. size is 0 if there is no room.
func (s *stripe[K, V]) offer(h uint64, k *K, v *V, o *QueueOptions[K, V]) (size, before uint64) {
	s.mu.Lock()
	if item, queued := s.queued.add(h, k, v, o); item != nil {
		if !queued && s.flushing {
			if flushed, _ := s.spare.lookUp(h, k); flushed != nil {
				item.before = o.Size(&flushed.Value)
			}
		}
		size, before = o.Size(&item.Value), item.before
	}
	s.mu.Unlock()
	return size, before
}

// take removes and returns the queued items. They are valid until done.
func (s *stripe[K, V]) take() []Item[K, V] {
	s.mu.Lock()
	s.queued, s.spare, s.flushing = s.spare, s.queued, true
	s.mu.Unlock()
	return s.spare.items
}

// done drops the items that take has returned.
func (s *stripe[K, V]) done(hash func(K) uint64) {
	s.mu.Lock()
	s.flushing = false
	s.mu.Unlock()
	s.spare.reset(hash)
}

// A table is a hash table of fixed size whose items are stored densely, in insertion order. Unlike
// a Go map it never grows, so adding never allocates.
type table[K comparable, V any] struct {
	items []Item[K, V] // up to its capacity
	index []uint32     // index in items + 1, at the hash or after it; 0 if empty
}

func newTable[K comparable, V any](capacity int) table[K, V] {
	return table[K, V]{
		items: make([]Item[K, V], 0, capacity),
		index: make([]uint32, 1<<bits.Len(uint(2*capacity))), // at most half full
	}
}

// add adds v under k, or merges it into the value that is queued there. It returns the item, or nil if there is no
// room.
func (t *table[K, V]) add(h uint64, k *K, v *V, o *QueueOptions[K, V]) (item *Item[K, V], queued bool) {
	item, i := t.lookUp(h, k)
	switch {
	case item != nil:
		o.Merge(&item.Value, *v)
		return item, true
	case len(t.items) == cap(t.items):
		return nil, false
	}
	t.items = append(t.items, Item[K, V]{Key: *k, Value: *v})
	t.index[i] = uint32(len(t.items))
	return &t.items[len(t.items)-1], false
}

// lookUp returns the item of k, or nil and where it belongs in the index.
func (t *table[K, V]) lookUp(h uint64, k *K) (item *Item[K, V], i uint64) {
	mask := uint64(len(t.index) - 1)
	for i = h >> 32 & mask; ; i = (i + 1) & mask {
		at := t.index[i]
		if at == 0 {
			return nil, i
		}
		if item := &t.items[at-1]; item.Key == *k {
			return item, i
		}
	}
}

// reset empties t and drops references held by its items.
func (t *table[K, V]) reset(hash func(K) uint64) {
	if len(t.items) > len(t.index)/32 {
		clear(t.index)
	} else {
		mask := uint64(len(t.index) - 1)
		for at := range t.items {
			i := hash(t.items[at].Key) >> 32 & mask
			for t.index[i] != uint32(at+1) {
				i = (i + 1) & mask
			}
			t.index[i] = 0
		}
	}
	clear(t.items)
	t.items = t.items[:0]
}
