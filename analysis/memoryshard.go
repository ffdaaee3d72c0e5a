package analysis

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/edgelimit/edge/counter"
)

// A memoryShard is an async.Shard in memory, on a virtual clock. Items expire as in memcached: at the end of the
// second in which their lifetime ends. While it is down, every call fails with ErrNotSent, as if nothing
// were listening.
type memoryShard struct {
	addr string
	now  *int64 // microseconds since the Unix epoch
	down bool

	counters map[counter.Item]memoryCounter
	records  map[counter.Item]memoryRecord
	kept     int    // number of items left when expired ones were last removed
	versions uint64 // of records
	values   []byte // of the reads of a batch
}

type memoryCounter struct {
	value   uint64
	expires int64 // second
}

type memoryRecord struct {
	value   []byte
	version uint64
	expires int64 // second
}

// fewestItems is the number of items below which expired ones are not removed.
const fewestItems = 1 << 10

func newMemoryShard(addr string, now *int64) *memoryShard {
	s := &memoryShard{addr: addr, now: now}
	s.clear()
	return s
}

// clear removes all items.
func (s *memoryShard) clear() {
	s.counters, s.records, s.kept = map[counter.Item]memoryCounter{}, map[counter.Item]memoryRecord{}, 0
}

func (s *memoryShard) Addr() string    { return s.addr }
func (s *memoryShard) Down() bool      { return s.down }
func (s *memoryShard) Available() bool { return !s.down }

// Exchange behaves like a memcached. The values that it reads are valid until the next call.
func (s *memoryShard) Exchange(b *counter.Batch) error {
	if s.down {
		return fmt.Errorf("%w: %s is lost", counter.ErrNotSent, s.addr)
	}
	second := *s.now / 1e6
	for i := range b.Increments {
		b.Increments[i].Outcome = s.increment(&b.Increments[i], second)
	}
	for i := range b.Stores {
		b.Stores[i].Outcome = s.store(&b.Stores[i], second)
	}
	s.values = s.values[:0]
	for i := range b.Reads {
		b.Reads[i].Outcome = s.read(&b.Reads[i], second)
	}
	if len(s.counters)+len(s.records) > 2*s.kept+fewestItems {
		maps.DeleteFunc(s.counters, func(_ counter.Item, c memoryCounter) bool { return c.expires <= second })
		maps.DeleteFunc(s.records, func(_ counter.Item, r memoryRecord) bool { return r.expires <= second })
		s.kept = len(s.counters) + len(s.records)
	}
	return nil
}

// increment implements INCR.
func (s *memoryShard) increment(op *counter.Increment, second int64) counter.Outcome {
	c := s.counters[op.Item]
	if c.expires <= second {
		if !op.Create {
			return counter.Absent
		}
		c = memoryCounter{value: op.Start, expires: second + int64(op.TTL)}
	}
	c.value += op.Delta // INCR does not renew the time to live
	s.counters[op.Item], op.Value = c, c.value
	return counter.Done
}

// store implements ADD and CAS.
func (s *memoryShard) store(op *counter.Store, second int64) counter.Outcome {
	r := s.records[op.Item]
	if r.expires <= second {
		r = memoryRecord{}
	}
	if r.version != op.CAS {
		return counter.Absent
	}
	s.versions++
	s.records[op.Item] = memoryRecord{op.Value, s.versions, second + int64(op.TTL)}
	return counter.Done
}

// read implements GETS.
func (s *memoryShard) read(op *counter.Read, second int64) counter.Outcome {
	if r := s.records[op.Item]; r.expires > second {
		op.Value, op.CAS = r.value, r.version
		return counter.Done
	}
	c := s.counters[op.Item]
	if c.expires <= second {
		return counter.Absent
	}
	from := len(s.values)
	s.values = strconv.AppendUint(s.values, c.value, 10)
	op.Value, op.CAS = s.values[from:len(s.values):len(s.values)], 0
	return counter.Done
}
