package shard

import "hash/maphash"

// minBuckets is the size of a stripe's first hash table.
const minBuckets = 64

// sweepStep is the number of blocks searched for a dead item before a live one is
// evicted. It bounds the work of a command. If one block in sweepStep is dead, hardly
// any live item is evicted.
const sweepStep = 16

// takeChain returns the first of n chained blocks. It makes room for them if
// necessary. n must be less than the arena's limit.
func (s *stripe) takeChain(n int, now int64) uint32 {
	var first uint32
	for range n {
		i := s.take()
		for i == 0 {
			if !s.sweep(now) {
				s.evict(now)
			}
			i = s.take()
		}
		s.at(i).put32(fieldChain, first)
		first = i
	}
	return first
}

// sweep removes the dead items from the next sweepStep blocks. It reports whether
// there were any.
func (s *stripe) sweep(now int64) bool {
	swept := false
	for range sweepStep {
		if s.hand++; s.hand > s.opened {
			s.hand = 1
		}
		i := uint32(s.hand)
		if b := s.at(i); b.isHead() && s.dead(b, now) {
			s.discard(i, reclaimed)
			swept = true
		}
	}
	return swept
}

// dead reports whether an item is expired or flushed.
func (s *stripe) dead(b *block, now int64) bool {
	return b.u64(fieldCAS) < s.flushed || expired(b, now)
}

// evict removes the least recently used item.
func (s *stripe) evict(now int64) {
	i := s.oldest
	if i == 0 {
		panic("shard: an item is larger than its stripe")
	}
	if s.dead(s.at(i), now) {
		s.discard(i, reclaimed)
	} else {
		s.discard(i, evictions)
	}
}

// discard removes item i and counts the removal.
func (s *stripe) discard(i uint32, why counter) {
	s.counts[why]++
	s.remove(s.hash(i), i)
}

// grow doubles the hash table.
func (s *stripe) grow() {
	old := s.buckets
	s.buckets = make([]uint32, max(minBuckets, 2*len(old)))
	mask := uint64(len(s.buckets) - 1)
	for _, i := range old {
		for i != 0 {
			b := s.at(i)
			next := b.u32(fieldBucket)
			bucket := &s.buckets[s.hash(i)&mask]
			b.put32(fieldBucket, *bucket)
			*bucket = i
			i = next
		}
	}
}

// hash returns the hash of the key of item i.
func (s *stripe) hash(i uint32) uint64 {
	var key [maxKey]byte
	return maphash.Bytes(s.seed, s.appendBytes(key[:0], i, 0, s.at(i).keyLen()))
}
