package async

import (
	"math/bits"
	"sync"
)

// An Item is a key and the merged offers for it.
type Item[K comparable, V any] struct {
	Key   K
	Value V
}

// A stripe is a part of a queue with its own lock. Offers go to one table while the items of the
// other are flushed.
type stripe[K comparable, V any] struct {
	mu     sync.Mutex
	queued table[K, V] // guarded by mu
	spare  table[K, V] // belongs to Run

	_ [64]byte // keeps the locks of adjacent stripes on different cache lines
}

func (s *stripe[K, V]) offer(h uint64, k *K, v *V, o *Options[K, V]) (size uint64) {
	s.mu.Lock()
	size = s.queued.add(h, k, v, o)
	s.mu.Unlock()
	return size
}

// take removes and returns the queued items. They are valid until spare is reset.
func (s *stripe[K, V]) take() []Item[K, V] {
	s.mu.Lock()
	s.queued, s.spare = s.spare, s.queued
	s.mu.Unlock()
	return s.spare.items
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

// add adds v under k. It returns the size of the value under k, including v, or 0 if there is no room.
func (t *table[K, V]) add(h uint64, k *K, v *V, o *Options[K, V]) (size uint64) {
	mask := uint64(len(t.index) - 1)
	for i := h >> 32 & mask; ; i = (i + 1) & mask {
		switch at := t.index[i]; {
		case at == 0:
			if len(t.items) == cap(t.items) {
				return 0
			}
			t.items = append(t.items, Item[K, V]{*k, *v})
			t.index[i] = uint32(len(t.items))
			return o.Size(&t.items[len(t.items)-1].Value)
		case t.items[at-1].Key == *k:
			queued := &t.items[at-1].Value
			o.Merge(queued, *v)
			return o.Size(queued)
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
