package shard

import (
	"hash/maphash"
	"sync"
)

// stripe is the part of a store that holds the items whose hashes are in some
// range: a hash table with chaining and a list in order of use, both linked through
// the blocks of an arena. Methods must be called with mu held. h is the hash of the
// key, and now is the store's time.
//
// hashicorp/golang-lru would need a string for each lookup, limits the number of
// entries instead of bytes, and takes more than twice the memory for a counter,
// with pointers that the garbage collector must follow.
type stripe struct {
	seed maphash.Seed

	mu sync.Mutex
	arena
	buckets        []uint32 // their number is a power of two
	newest, oldest uint32
	items          int
	hand           int    // where the search for dead items continues
	flushed        uint64 // items with a lower cas are dead
	counts         counts
}

// find returns the item of key, or 0. It removes and counts an expired or flushed
// one.
func (s *stripe) find(h uint64, key []byte, now int64) uint32 {
	i := s.lookUp(h, key)
	if i == 0 {
		return 0
	}
	switch b := s.at(i); {
	case b.u64(fieldCAS) < s.flushed:
		s.counts[getFlushed]++
	case expired(b, now):
		s.counts[getExpired]++
	default:
		return i
	}
	s.remove(h, i)
	return 0
}

// lookUp returns the item of key, even an expired or flushed one, or 0.
func (s *stripe) lookUp(h uint64, key []byte) uint32 {
	if len(s.buckets) == 0 {
		return 0
	}
	i := s.buckets[h&uint64(len(s.buckets)-1)]
	for i != 0 && !s.keyEqual(i, key) {
		i = s.at(i).u32(fieldBucket)
	}
	return i
}

func expired(b *block, now int64) bool {
	deadline := int64(b.u64(fieldDeadline))
	return deadline != 0 && deadline <= now
}

// insert adds an item for key, which must not have one, with room for a value of
// valueLen bytes. The caller sets the value, flags, CAS unique and deadline.
func (s *stripe) insert(h uint64, key []byte, valueLen int, now int64) uint32 {
	i := s.takeChain(blocksFor(len(key)+valueLen), now)
	b := s.at(i)
	chain := b.u32(fieldChain)
	*b = block{}
	b.put32(fieldChain, chain|headMark)
	b[fieldKeyLen] = byte(len(key))
	b.put32(fieldValueLen, uint32(valueLen))
	s.write(i, 0, key)

	s.items++
	if s.items > len(s.buckets) {
		s.grow()
	}
	bucket := &s.buckets[h&uint64(len(s.buckets)-1)]
	b.put32(fieldBucket, *bucket)
	*bucket = i
	s.link(i)
	return i
}

// resize makes room for a value of valueLen bytes in item i. It keeps the first
// bytes of the value.
func (s *stripe) resize(i uint32, valueLen int, now int64) {
	b := s.at(i)
	have := b.size()
	b.put32(fieldValueLen, uint32(valueLen))
	want := b.size()
	if want == have {
		return
	}
	last := i
	for range min(have, want) - 1 {
		last = s.at(last).chain()
	}
	if want < have {
		rest := s.at(last).chain()
		s.at(last).setChain(0)
		s.release(rest)
		return
	}
	// The item must not be evicted to make room for its own blocks.
	s.unlink(i)
	b.put32(fieldChain, b.u32(fieldChain)&^headMark)
	more := s.takeChain(want-have, now)
	b.put32(fieldChain, b.u32(fieldChain)|headMark)
	s.at(last).setChain(more)
	s.link(i)
}

// remove removes item i.
func (s *stripe) remove(h uint64, i uint32) {
	b := s.at(i)
	next := b.u32(fieldBucket)
	bucket := &s.buckets[h&uint64(len(s.buckets)-1)]
	if *bucket == i {
		*bucket = next
	} else {
		before := s.at(*bucket)
		for before.u32(fieldBucket) != i {
			before = s.at(before.u32(fieldBucket))
		}
		before.put32(fieldBucket, next)
	}
	s.unlink(i)
	s.items--
	s.release(i)
}

// use makes item i the most recently used one.
func (s *stripe) use(i uint32) {
	if s.newest != i {
		s.unlink(i)
		s.link(i)
	}
}

func (s *stripe) link(i uint32) {
	b := s.at(i)
	b.put32(fieldNewer, 0)
	b.put32(fieldOlder, s.newest)
	if s.newest != 0 {
		s.at(s.newest).put32(fieldNewer, i)
	} else {
		s.oldest = i
	}
	s.newest = i
}

func (s *stripe) unlink(i uint32) {
	b := s.at(i)
	newer, older := b.u32(fieldNewer), b.u32(fieldOlder)
	if newer != 0 {
		s.at(newer).put32(fieldOlder, older)
	} else {
		s.newest = older
	}
	if older != 0 {
		s.at(older).put32(fieldNewer, newer)
	} else {
		s.oldest = newer
	}
}

// appendValue appends the value of item i to dst.
func (s *stripe) appendValue(dst []byte, i uint32) []byte {
	b := s.at(i)
	return s.appendBytes(dst, i, b.keyLen(), b.valueLen())
}
