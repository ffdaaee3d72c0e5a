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
	addr   string
	now    *int64 // microseconds since the Unix epoch
	losses int    // number of current losses: it is down if there is one
	outs   int    // number of losses that keep it out of the ring

	items    map[counter.Item]memoryItem
	kept     int    // number of items left when expired ones were last removed
	versions uint64 // of records
	values   []byte // of the reads of a batch
}

// A memoryItem is a counter or a record.
type memoryItem struct {
	expires int64  // second
	number  uint64 // count of the counter, or version of the record
	record  []byte // nil for a counter
}

// fewestItems is the number of items below which expired ones are not removed.
const fewestItems = 1 << 10

func newMemoryShard(addr string, now *int64) *memoryShard {
	s := &memoryShard{addr: addr, now: now}
	s.clear()
	return s
}

// clear removes everything.
func (s *memoryShard) clear() {
	s.items, s.kept = map[counter.Item]memoryItem{}, 0
}

func (s *memoryShard) Addr() string    { return s.addr }
func (s *memoryShard) Down() bool      { return s.losses > 0 }
func (s *memoryShard) Available() bool { return !s.Down() }

// Exchange behaves like a memcached. The values that it reads are valid until the next call.
func (s *memoryShard) Exchange(b *counter.Batch) error {
	if s.Down() {
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
	if len(s.items) > 2*s.kept+fewestItems {
		maps.DeleteFunc(s.items, func(_ counter.Item, i memoryItem) bool { return i.expires <= second })
		s.kept = len(s.items)
	}
	return nil
}

// increment implements INCR.
func (s *memoryShard) increment(op *counter.Increment, second int64) counter.Outcome {
	i := s.items[op.Item]
	if i.expires <= second {
		if !op.Create {
			return counter.Absent
		}
		i = memoryItem{expires: second + int64(op.TTL), number: op.Start}
	}
	i.number += op.Delta // INCR does not renew the time to live
	s.items[op.Item], op.Value = i, i.number
	return counter.Done
}

// store implements ADD and CAS.
func (s *memoryShard) store(op *counter.Store, second int64) counter.Outcome {
	i := s.items[op.Item]
	if i.expires <= second {
		i.number = 0
	}
	if i.number != op.CAS {
		return counter.Absent
	}
	s.versions++
	s.items[op.Item] = memoryItem{second + int64(op.TTL), s.versions, op.Value}
	return counter.Done
}

// read implements GETS.
func (s *memoryShard) read(op *counter.Read, second int64) counter.Outcome {
	i := s.items[op.Item]
	if i.expires <= second {
		return counter.Absent
	}
	op.Value, op.CAS = i.record, i.number
	if i.record == nil {
		from := len(s.values)
		s.values = strconv.AppendUint(s.values, i.number, 10)
		op.Value, op.CAS = s.values[from:len(s.values):len(s.values)], 0
	}
	return counter.Done
}
