package analysis

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"strconv"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
)

// A memoryShard is a count.Shard in memory, on a virtual clock. Items expire as in memcached: at the end of the
// second in which their lifetime ends. While it is down, every call fails as provably unsent, as if nothing
// listened.
type memoryShard struct {
	addr string
	lost error // error of calls while it is down; else nil

	second   int64           // current time, since the Unix epoch
	counters []memoryCounter // a hash table with linear probing; its size is a power of two
	taken    int             // counters in use, including expired ones
	records  map[counter.Item]memoryRecord
	kept     int    // number of records after expired ones were last removed
	versions uint64 // of records
	values   []byte // of the reads of a batch
	fetched  int64  // meaningless: see Exchange
}

// A memoryCounter keeps its place when it has expired, until the table grows, so that probing finds the others.
type memoryCounter struct {
	item    counter.Item // zero if unused
	value   uint64
	expires int64 // second
}

type memoryRecord struct {
	value   []byte
	version uint64
	expires int64
}

const fewestCounters = 1 << 10

func newMemoryShard(addr string) *memoryShard {
	s := &memoryShard{addr: addr}
	s.clear()
	return s
}

// clear removes everything.
func (s *memoryShard) clear() {
	s.counters, s.taken = make([]memoryCounter, fewestCounters), 0
	s.records, s.kept = map[counter.Item]memoryRecord{}, 0
}

// tick sets the clock.
func (s *memoryShard) tick(second int64) { s.second = second }

// place returns the place for a counter, unless another one is there. Items are hashes.
func (s *memoryShard) place(item *counter.Item) int {
	const odd = 0x9e3779b97f4a7c15 // spreads the bits of each character
	return int(binary.LittleEndian.Uint64(item[8:]) * odd >> 32 & uint64(len(s.counters)-1))
}

// counter returns a counter, or the free place for it.
func (s *memoryShard) counter(item *counter.Item) *memoryCounter {
	for at := s.place(item); ; at = (at + 1) & (len(s.counters) - 1) {
		if c := &s.counters[at]; c.item[0] == 0 || c.item == *item {
			return c
		}
	}
}

// holds reports whether c is in use.
func (s *memoryShard) holds(c *memoryCounter) bool { return c.item[0] != 0 && c.expires > s.second }

// grow makes room for more counters, and removes expired ones.
func (s *memoryShard) grow() {
	before := s.counters
	s.taken = 0
	for i := range before {
		if s.holds(&before[i]) {
			s.taken++
		}
	}
	s.counters = make([]memoryCounter, max(fewestCounters, 1<<bits.Len(uint(2*s.taken))))
	for i := range before {
		if c := &before[i]; s.holds(c) {
			*s.counter(&c.item) = *c
		}
	}
}

// increment implements INCR, and reports whether the counter exists.
func (s *memoryShard) increment(op *memcached.Increment) bool {
	c := s.counter(&op.Item)
	if !s.holds(c) {
		if !op.Make {
			return false
		}
		if c.item[0] == 0 {
			s.taken++
		}
		*c = memoryCounter{op.Item, 0, s.second + int64(op.TTL)}
	}
	c.value += op.Delta // INCR does not renew the time to live
	op.Value = c.value
	if 4*s.taken > 3*len(s.counters) {
		s.grow()
	}
	return true
}

// store implements ADD and CAS, and reports whether the record had the version.
func (s *memoryShard) store(op *memcached.Store) bool {
	r, ok := s.records[op.Item]
	if ok && r.expires <= s.second {
		r = memoryRecord{}
	}
	if r.version != op.CAS {
		return false
	}
	s.versions++
	s.records[op.Item] = memoryRecord{op.Value, s.versions, s.second + int64(op.TTL)}
	if len(s.records) > 2*s.kept+fewestCounters {
		maps.DeleteFunc(s.records, func(_ counter.Item, r memoryRecord) bool { return r.expires <= s.second })
		s.kept = len(s.records)
	}
	return true
}

// read implements GETS, and reports whether the counter or record exists.
func (s *memoryShard) read(op *memcached.Read) bool {
	if r, ok := s.records[op.Item]; ok && r.expires > s.second {
		op.Value, op.CAS = r.value, r.version
		return true
	}
	c := s.counter(&op.Item)
	if !s.holds(c) {
		return false
	}
	from := len(s.values)
	s.values = strconv.AppendUint(s.values, c.value, 10)
	op.Value, op.CAS = s.values[from:len(s.values):len(s.values)], 0
	return true
}

// fail takes the shard down and loses its items.
func (s *memoryShard) fail() {
	s.clear()
	s.lost = fmt.Errorf("%w: %s is lost", memcached.ErrNotSent, s.addr)
}

// restart brings the shard back.
func (s *memoryShard) restart() { s.lost = nil }

func (s *memoryShard) Addr() string    { return s.addr }
func (s *memoryShard) Down() bool      { return s.lost != nil }
func (s *memoryShard) Available() bool { return s.lost == nil }

// Exchange implements a memcached. The values that it reads are valid until the next call.
func (s *memoryShard) Exchange(b *memcached.Batch) error {
	if s.lost != nil {
		return s.lost
	}
	// Reading all counters first makes cache misses overlap.
	for i := range b.Increments {
		s.fetched += s.counters[s.place(&b.Increments[i].Item)].expires
	}
	for i := range b.Reads {
		s.fetched += s.counters[s.place(&b.Reads[i].Item)].expires
	}
	s.values = s.values[:0]
	for i := range b.Increments {
		b.Increments[i].Outcome = doneIf(s.increment(&b.Increments[i]))
	}
	for i := range b.Stores {
		b.Stores[i].Outcome = doneIf(s.store(&b.Stores[i]))
	}
	for i := range b.Reads {
		b.Reads[i].Outcome = doneIf(s.read(&b.Reads[i]))
	}
	return nil
}

func doneIf(done bool) memcached.Outcome {
	if done {
		return memcached.Done
	}
	return memcached.Absent
}
