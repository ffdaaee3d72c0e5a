package analysis

import (
	"container/heap"
	"fmt"
	"strconv"

	"github.com/edgelimit/edge/counter"
)

// A memoryShard is a count.Shard in memory, on a virtual clock. What it holds expires as in
// memcached. While it is down every call fails provably unsent, as where nobody listens.
type memoryShard struct {
	addr string
	lost error // what calls fail with while it is down; else nil

	versions uint64 // of records

	second   int64 // now, since the Unix epoch
	items    map[counter.Item]item
	expiring map[int64][]counter.Item // by the second in which they expire; may name what is gone
	due      seconds                  // keys of expiring
}

// An item is a counter, or a record if it has a value.
type item struct {
	number  uint64
	value   []byte
	version uint64 // of a record
	expires int64
}

func newMemoryShard(addr string) *memoryShard {
	s := &memoryShard{addr: addr}
	s.clear()
	return s
}

// clear forgets everything.
func (s *memoryShard) clear() {
	s.items, s.expiring, s.due = map[counter.Item]item{}, map[int64][]counter.Item{}, nil
}

// tick sets the clock, and removes what has expired by then.
func (s *memoryShard) tick(second int64) {
	s.second = second
	for len(s.due) > 0 && s.due[0] <= second {
		at := heap.Pop(&s.due).(int64)
		for _, key := range s.expiring[at] {
			if it, ok := s.items[key]; ok && it.expires == at {
				delete(s.items, key)
			}
		}
		delete(s.expiring, at)
	}
}

// put stores it under key for ttl seconds, as memcached does: until the second is over in
// which it would end.
func (s *memoryShard) put(key counter.Item, it item, ttl int32) {
	it.expires = s.second + int64(ttl)
	s.items[key] = it
	if _, known := s.expiring[it.expires]; !known {
		heap.Push(&s.due, it.expires)
	}
	s.expiring[it.expires] = append(s.expiring[it.expires], key)
}

// fail takes the shard down, with all that it holds.
func (s *memoryShard) fail() {
	s.clear()
	s.lost = fmt.Errorf("%w: %s is lost", counter.ErrNotSent, s.addr)
}

// restart takes the shard up again.
func (s *memoryShard) restart() { s.lost = nil }

func (s *memoryShard) Addr() string    { return s.addr }
func (s *memoryShard) Down() bool      { return s.lost != nil }
func (s *memoryShard) Available() bool { return s.lost == nil }

// Exchange does what a memcached does. INCR does not renew the time to live.
func (s *memoryShard) Exchange(b *counter.Batch) error {
	if s.lost != nil {
		return s.lost
	}
	for i := range b.Increments {
		op := &b.Increments[i]
		it, ok := s.items[op.Item]
		if !ok && !op.Make {
			op.Outcome = counter.Absent
			continue
		}
		it.number += op.Delta
		if ok {
			s.items[op.Item] = it
		} else {
			s.put(op.Item, it, op.TTL)
		}
		op.Outcome, op.Value = counter.Done, it.number
	}
	for i := range b.Stores {
		op := &b.Stores[i]
		if it := s.items[op.Item]; it.version != op.CAS {
			op.Outcome = counter.Absent
			continue
		}
		s.versions++
		s.put(op.Item, item{value: op.Value, version: s.versions}, op.TTL)
		op.Outcome = counter.Done
	}
	for i := range b.Reads {
		op := &b.Reads[i]
		it, ok := s.items[op.Item]
		if op.Outcome = counter.Absent; !ok {
			continue
		}
		op.Outcome, op.Value, op.CAS = counter.Done, it.value, it.version
		if it.value == nil {
			op.Value = strconv.AppendUint(nil, it.number, 10)
		}
	}
	return nil
}

// seconds is a heap.
type seconds []int64

func (s seconds) Len() int           { return len(s) }
func (s seconds) Less(i, j int) bool { return s[i] < s[j] }
func (s seconds) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *seconds) Push(x any)        { *s = append(*s, x.(int64)) }
func (s *seconds) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}
