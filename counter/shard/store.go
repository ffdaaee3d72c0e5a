package shard

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxKey = 250

	// maxValue is the maximum size of a value, in bytes. In a small store it is a quarter of the
	// log, so that one value does not evict everything else.
	maxValue = 128 << 10

	// maxStripes is the maximum number of stripes.
	maxStripes = 1024

	// A counter takes counterSize bytes of a log, and up to indexShare of the index.
	counterSize = 64
	indexShare  = 40
)

// A store holds items, striped by the hashes of their keys. It is safe for concurrent use. Times are in nanoseconds by
// its clock.
type store struct {
	stripes  []stripe
	seeds    [2]maphash.Seed
	shift    int // turns a hash into the index of a stripe
	epoch    time.Time
	maxValue int
	lastCAS  atomic.Uint64
}

// newStore returns a store whose items and index take at most maxBytes.
func newStore(maxBytes int64, start time.Time) *store {
	logs := maxBytes * counterSize / (counterSize + indexShare)
	n := 1 << (bits.Len64(uint64(min(maxStripes, max(1, logs/(4*maxValue))))) - 1)
	st := &store{
		stripes: make([]stripe, n),
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		shift:   64 - bits.TrailingZeros(uint(n)),
		epoch:   start.Add(-time.Second), // the clock is never 0 or 1, which stand for never and longAgo
	}
	size := int(logs/int64(n)) &^ 7
	for i := range st.stripes {
		st.stripes[i].log.max = size
	}
	st.maxValue = min(maxValue, size/4)
	st.flush()
	return st
}

// clock returns the store's time at now. It is monotonic.
func (st *store) clock(now time.Time) int64 { return int64(now.Sub(st.epoch)) }

const (
	never   = 0
	longAgo = 1

	// maxRelative is the maximum exptime that is relative, in seconds. Greater ones are Unix times.
	maxRelative = 30 * 24 * 60 * 60
)

// deadline returns when an item that is given exptime at now expires.
func (st *store) deadline(exptime, now int64) int64 {
	switch {
	case exptime == 0:
		return never
	case exptime < 0:
		return longAgo
	case exptime <= maxRelative:
		return now + exptime*int64(time.Second)
	}
	return max(longAgo, st.clock(time.Unix(exptime, 0)))
}

// lock locks the stripe of key and returns it, with the hash of key.
func (st *store) lock(key []byte) (*stripe, hash) {
	h := hash{maphash.Bytes(st.seeds[0], key), maphash.Bytes(st.seeds[1], key)}
	s := &st.stripes[h[0]>>st.shift]
	s.mu.Lock()
	return s, h
}

// get appends the VALUE reply for key to dst, if key has an item.
func (st *store) get(dst, key []byte, withCAS bool, now int64) []byte {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	found := s.find(h, now)
	s.count(found != nil, getHits, getMisses)
	if found == nil {
		return dst
	}
	meta, value := found.meta(), found.value()
	dst = append(append(dst, "VALUE "...), key...)
	dst = strconv.AppendUint(append(dst, ' '), uint64(meta.flags), 10)
	dst = strconv.AppendInt(append(dst, ' '), int64(len(value)), 10)
	if withCAS {
		dst = strconv.AppendUint(append(dst, ' '), meta.cas, 10)
	}
	dst = append(append(dst, "\r\n"...), value...)
	return append(dst, "\r\n"...)
}

// set executes set, add or cas, and returns the reply. given has the flags and the deadline, and for cas the
// CAS unique that the item must have.
func (st *store) set(command string, key []byte, given meta, value []byte, now int64) string {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	s.counts[cmdSet]++
	found := s.find(h, now)
	switch {
	case command == "add" && found != nil:
		return "NOT_STORED"
	case command != "cas":
	case found == nil:
		s.counts[casMisses]++
		return "NOT_FOUND"
	case found.meta().cas != given.cas:
		s.counts[casBadval]++
		return "EXISTS"
	default:
		s.counts[casHits]++
	}
	given.cas = st.lastCAS.Add(1)
	s.put(h, given, value, now)
	return "STORED"
}

// incr adds by to the number under key, modulo 2^64, and returns the sum or, as problem, the reply that says why it
// cannot. It pads a number that gets shorter with spaces, and keeps flags and deadline.
func (st *store) incr(key []byte, by uint64, now int64) (n uint64, problem string) {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	found := s.find(h, now)
	if found == nil {
		s.counts[incrMisses]++
		return 0, "NOT_FOUND"
	}
	meta, text := found.meta(), found.value()
	n, ok := parseUint(bytes.TrimRight(text, " "), 64)
	if !ok {
		return 0, "CLIENT_ERROR cannot increment or decrement non-numeric value"
	}
	s.counts[incrHits]++
	n += by
	var room [20]byte
	digits := strconv.AppendUint(room[:0], n, 10)
	meta.cas = st.lastCAS.Add(1)
	if len(digits) > len(text) {
		s.put(h, meta, digits, now)
		return n, ""
	}
	for i := copy(text, digits); i < len(text); i++ {
		text[i] = ' '
	}
	found.setMeta(meta)
	return n, ""
}

// delete removes the item of key, and reports whether there was one.
func (st *store) delete(key []byte, now int64) bool {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	found := s.find(h, now)
	s.count(found != nil, deleteHits, deleteMisses)
	if found != nil {
		delete(s.index, h[0])
	}
	return found != nil
}

// drop is delete without counting.
func (st *store) drop(key []byte) {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	delete(s.index, h[0])
}

// malformed counts a storage command whose value was malformed.
func (st *store) malformed(key []byte) {
	s, _ := st.lock(key)
	defer s.mu.Unlock()
	s.counts[cmdSet]++
}

// flush removes all items.
func (st *store) flush() {
	for i := range st.stripes {
		s := &st.stripes[i]
		s.mu.Lock()
		s.index, s.log, s.moves = map[uint64]int32{}, log{max: s.log.max}, maxMoves
		s.mu.Unlock()
	}
}

// A stripe is a part of a store. Its methods must be called with mu held.
//
// hashicorp/golang-lru limits the number of entries instead of bytes, and takes more than twice
// the memory for a counter, with pointers that the garbage collector must follow.
type stripe struct {
	mu     sync.Mutex
	log    log
	index  map[uint64]int32 // offset in log, by the first half of the hash; an item that is not in it is dead
	moves  int              // how many items may move before a dead one must be found
	counts counts
}

// find returns the item of a key, or nil if the key has no item. The result is valid until the next put.
func (s *stripe) find(h hash, now int64) item {
	at, ok := s.index[h[0]]
	if !ok || s.log.item(int(at)).hash() != h {
		return nil
	}
	found := s.log.item(int(at))
	switch {
	case found.meta().expired(now):
		delete(s.index, h[0])
		return nil
	case s.log.old(int(at)):
		return s.put(h, found.meta(), bytes.Clone(found.value()), now)
	}
	return found
}

// put stores an item, in place of one with the same first half of the hash or at the head of the log. It evicts others
// if there is no room.
func (s *stripe) put(h hash, given meta, value []byte, now int64) item {
	at, replaces := s.index[h[0]]
	n := roomFor(len(value))
	if !replaces || roomFor(len(s.log.item(int(at)).value())) != n || s.log.old(int(at)) {
		delete(s.index, h[0])
		to, ok := s.log.take(n)
		for ; !ok; to, ok = s.log.take(n) {
			s.evict(now)
		}
		at = int32(to)
		s.index[h[0]] = at
	}
	stored := s.log.at(int(at), header+len(value))
	binary.LittleEndian.PutUint64(stored, h[0])
	binary.LittleEndian.PutUint64(stored[8:], h[1])
	stored.setMeta(given)
	binary.LittleEndian.PutUint32(stored[36:], uint32(len(value)))
	copy(stored[header:], value)
	return stored
}

// An item at the tail of the log that is still alive moves to the head as long as eviction finds dead items: each dead
// item pays for movesPerDead moves. So nothing is evicted while a quarter of the log is dead. maxMoves bounds the moves
// that are saved up, and so the work of a command. More moves per dead item would keep unused items rather than used
// ones.
const (
	movesPerDead = 3
	maxMoves     = 1024
)

// evict removes the item at the tail of the log.
func (s *stripe) evict(now int64) {
	at, oldest := s.log.tail, s.log.item(s.log.tail)
	first, n := oldest.hash()[0], roomFor(len(oldest.value()))
	to, alive := s.index[first]
	alive = alive && int(to) == at
	s.log.drop(n)
	switch expired := oldest.meta().expired(now); {
	case !alive, expired:
		s.moves = min(s.moves+movesPerDead, maxMoves)
		if !alive {
			return
		}
		s.counts[reclaimed]++
	case s.moves > 0:
		s.moves--
		delete(s.index, first)
		to, ok := s.log.take(n)
		if !ok { // at the end of the log, others must go first
			oldest = bytes.Clone(oldest)
		}
		for ; !ok; to, ok = s.log.take(n) {
			s.evict(now)
		}
		copy(s.log.at(to, n), oldest)
		s.index[first] = int32(to)
		return
	default:
		s.counts[evictions]++
	}
	delete(s.index, first)
}

// A hash identifies a key: its 128 bits depend on random seeds, so the store need not keep keys.
type hash [2]uint64

// A meta holds the data that memcached keeps with a value.
type meta struct {
	deadline int64 // see store.deadline
	cas      uint64
	flags    uint32
}

func (m meta) expired(now int64) bool { return m.deadline != never && m.deadline <= now }

// An item is encoded: hash, meta, size of the value, value.
type item []byte

const header = 40

// roomFor returns how many bytes an item with a value of n bytes takes in a log: at least as many as a counter.
func roomFor(n int) int { return max(counterSize, (header+n+7)&^7) }

func (it item) hash() hash {
	return hash{binary.LittleEndian.Uint64(it), binary.LittleEndian.Uint64(it[8:])}
}

func (it item) meta() meta {
	return meta{int64(binary.LittleEndian.Uint64(it[16:])), binary.LittleEndian.Uint64(it[24:]),
		binary.LittleEndian.Uint32(it[32:])}
}

func (it item) setMeta(m meta) {
	binary.LittleEndian.PutUint64(it[16:], uint64(m.deadline))
	binary.LittleEndian.PutUint64(it[24:], m.cas)
	binary.LittleEndian.PutUint32(it[32:], m.flags)
}

func (it item) value() []byte { return it[header:][:binary.LittleEndian.Uint32(it[36:])] }
