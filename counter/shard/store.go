package shard

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	maxKey = 250

	// maxStripes keeps a stripe of a large store small enough for its hash
	// table to grow in a few milliseconds.
	maxStripes = 1024

	// itemsPerStripe is the minimum number of items of the maximum size that a
	// stripe can hold, so that one of them does not evict everything else.
	itemsPerStripe = 4
)

// store holds items, striped by the hash of their keys. While a stripe is locked, a
// reply is built in memory, but nothing is sent or received.
// It is safe for concurrent use.
type store struct {
	stripes     []stripe
	seed        maphash.Seed
	shift       int // that turns a hash into the index of a stripe
	epoch       time.Time
	maxItemSize int
	lastCAS     atomic.Uint64
}

func newStore(maxBytes int64, maxItemSize int, start time.Time) *store {
	n := int(min(maxStripes, maxBytes/(itemsPerStripe*int64(maxItemSize))))
	n = 1 << (bits.Len(uint(max(1, n))) - 1)
	st := &store{
		stripes:     make([]stripe, n),
		seed:        maphash.MakeSeed(),
		shift:       64 - bits.TrailingZeros(uint(n)),
		maxItemSize: maxItemSize,
		// The clock is never 0 or 1, which stand for never and longAgo in
		// deadlines.
		epoch: start.Add(-time.Second),
	}
	for i := range st.stripes {
		st.stripes[i].seed = st.seed
		st.stripes[i].limit = int(maxBytes / int64(n) / blockCost)
	}
	return st
}

// clock returns the store's time in nanoseconds. It is monotonic.
func (st *store) clock(now time.Time) int64 { return int64(now.Sub(st.epoch)) }

// lock locks the stripe of key and returns it with the hash of key.
func (st *store) lock(key []byte) (*stripe, uint64) {
	h := maphash.Bytes(st.seed, key)
	s := &st.stripes[h>>st.shift]
	s.mu.Lock()
	return s, h
}

const (
	never   = 0
	longAgo = 1

	// maxRelative is the maximum exptime that is relative, in seconds. Greater
	// ones are Unix times.
	maxRelative = 30 * 24 * 60 * 60
)

// deadline returns when an item that is given exptime at now expires.
func (st *store) deadline(exptime int32, now time.Time) int64 {
	switch {
	case exptime == 0:
		return never
	case exptime < 0:
		return longAgo
	case exptime <= maxRelative:
		return st.clock(now.Add(time.Duration(exptime) * time.Second))
	default:
		return max(longAgo, st.clock(now)+int64(time.Unix(int64(exptime), 0).Sub(now)))
	}
}

// Memcached compares the length of key and value with its item limit after adding
// itemOverhead, and flagsOverhead unless the flags are 0.
const (
	itemOverhead  = 59
	flagsOverhead = 4
)

// fits reports whether an item is within the size limit.
func (st *store) fits(keyLen int, flags uint32, valueLen int) bool {
	n := itemOverhead + keyLen + valueLen
	if flags != 0 {
		n += flagsOverhead
	}
	return n <= st.maxItemSize
}
