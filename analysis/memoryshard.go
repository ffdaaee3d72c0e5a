package analysis

import (
	"container/heap"
	"fmt"
	"strconv"

	"github.com/edgelimit/edge/counter"
)

// A memoryShard is a limit.Shard in memory, on a virtual clock. What it holds expires as in
// memcached. While it is down every call fails provably unsent, as where nobody listens.
type memoryShard struct {
	addr string
	lost error // what calls fail with while it is down; else nil

	second   int64 // now, since the Unix epoch
	items    map[string]item
	expiring map[int64][]string // by the second in which they expire; may name what is gone
	due      seconds            // keys of expiring
}

// An item is a counter, or a record if it has a value.
type item struct {
	number  uint64
	value   []byte
	expires int64
}

func newMemoryShard(addr string) *memoryShard {
	s := &memoryShard{addr: addr}
	s.clear()
	return s
}

// clear forgets everything.
func (s *memoryShard) clear() {
	s.items, s.expiring, s.due = map[string]item{}, map[int64][]string{}, nil
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
func (s *memoryShard) put(key string, it item, ttl int32) {
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
func (s *memoryShard) Probe() error    { return s.lost }

// Count is INCR, or ADD where there is no counter. INCR does not renew the time to live.
func (s *memoryShard) Count(key string, delta uint64, ttl int32) (uint64, error) {
	if s.lost != nil {
		return 0, s.lost
	}
	it, ok := s.items[key]
	it.number += delta
	if ok {
		s.items[key] = it
	} else {
		s.put(key, it, ttl)
	}
	return it.number, nil
}

// Numbers is a GET of several keys.
func (s *memoryShard) Numbers(keys ...string) (map[string][]byte, error) {
	if s.lost != nil {
		return nil, s.lost
	}
	var values map[string][]byte
	for _, key := range keys {
		it, ok := s.items[key]
		if !ok {
			continue
		}
		if values == nil {
			values = make(map[string][]byte, len(keys))
		}
		if values[key] = it.value; it.value == nil {
			values[key] = strconv.AppendUint(nil, it.number, 10)
		}
	}
	return values, nil
}

// Update is GETS and CAS. Nobody else writes meanwhile.
func (s *memoryShard) Update(key string, change func(old []byte) ([]byte, int32)) error {
	if s.lost != nil {
		return s.lost
	}
	if value, ttl := change(s.items[key].value); value != nil {
		s.put(key, item{value: value}, ttl)
	}
	return nil
}

// Delete is DELETE of several keys.
func (s *memoryShard) Delete(keys ...string) error {
	if s.lost != nil {
		return s.lost
	}
	for _, key := range keys {
		delete(s.items, key)
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
