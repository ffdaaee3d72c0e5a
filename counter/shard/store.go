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

	// itemsPerStripe is how many items of the greatest size a stripe holds at
	// least, so that one of them does not empty it.
	itemsPerStripe = 4
)

// store holds items, striped by the hash of their keys. A reply is built while
// the stripe of its key is locked, in memory; nothing is sent or received then.
// It is safe for concurrent use.
type store struct {
	stripes     []stripe
	seed        maphash.Seed
	shift       int // of a hash, to get a stripe
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
		// The clock never shows 0, which means never in a deadline, nor 1,
		// which means long ago.
		epoch: start.Add(-time.Second),
	}
	for i := range st.stripes {
		st.stripes[i].seed = st.seed
		st.stripes[i].limit = int(maxBytes / int64(n) / blockCost)
	}
	return st
}

// clock returns the store's time: nanoseconds, not affected by changes of the
// wall clock.
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

	// maxRelative is the greatest exptime that is relative, in seconds. A
	// greater one is a Unix time.
	maxRelative = 30 * 24 * 60 * 60
)

// deadline returns when an item expires that is given exptime at now.
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

// itemOverhead is what memcached adds to the length of key and value for its
// item limit, and flagsOverhead what non-zero flags add.
const (
	itemOverhead  = 59
	flagsOverhead = 4
)

// fits reports whether an item is within the limit for one.
func (st *store) fits(keyLen int, flags uint32, valueLen int) bool {
	n := itemOverhead + keyLen + valueLen
	if flags != 0 {
		n += flagsOverhead
	}
	return n <= st.maxItemSize
}
