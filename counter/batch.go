package counter

import (
	"bytes"
	"errors"
	"strconv"
)

// An Outcome is the result of one operation of a batch for a shard.
type Outcome uint8

const (
	NotSent Outcome = iota // provably not sent: it may be sent again
	Done                   // done by the shard
	Absent                 // not done: the item does not exist, or one exists that must not
	Refused                // not done: the shard answered with an error
	Unknown                // sent without an answer: it must not be sent again
)

// An Increment adds Delta to a counter. If Create is set and the counter does not exist, it is first
// created with the value Start and a time to live in seconds.
type Increment struct {
	Item   Item
	Delta  uint64
	Create bool
	Start  uint64
	TTL    int32

	Outcome Outcome
	Value   uint64 // of the counter, if Done
}

// A Read reads a counter or a record.
type Read struct {
	Item Item

	Outcome Outcome
	Value   []byte // if Done; it belongs to the batch
	CAS     uint64 // version of the value
}

// Count returns the value of a counter that r has read: 0 if it does not exist. ok is false if the shard sent no valid
// value.
func (r *Read) Count() (n uint64, ok bool) {
	if r.Outcome == Done {
		return ParseValue(r.Value)
	}
	return 0, r.Outcome == Absent
}

// A Store writes a record with a time to live in seconds: a new one if CAS is 0; otherwise it replaces the one that a
// Read returned with this version.
type Store struct {
	Item  Item
	Value []byte
	TTL   int32
	CAS   uint64

	Outcome Outcome
}

// Errors of an exchange with a shard, wrapped with the operation and the cause.
var (
	// ErrNotSent means that the shard has counted nothing: its breaker is open, or it is unreachable or unusable. Counts
	// must be sent later.
	ErrNotSent = errors.New("not sent")

	// ErrUnknown means that the shard may or may not have done the operations. Counts must not be sent again.
	ErrUnknown = errors.New("outcome unknown")
)

// A Batch holds the operations of one exchange with a shard: increments, then stores, then reads. The zero value is
// empty; [Batch.Reset] empties it for reuse. A Batch is not safe for concurrent use.
type Batch struct {
	Increments []Increment
	Stores     []Store
	Reads      []Read

	Values []byte // memory of the values of Reads
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.Increments, b.Stores, b.Reads = b.Increments[:0], b.Stores[:0], b.Reads[:0]
}

// Len returns the number of operations in the batch.
func (b *Batch) Len() int { return len(b.Increments) + len(b.Stores) + len(b.Reads) }

// Digits is the number of digits of the greatest value of a counter.
const Digits = 20

// ParseValue parses the value of a counter, a decimal number of at most 64 bits. memcached pads a value that has become
// shorter with spaces.
func ParseValue(value []byte) (n uint64, ok bool) {
	if value = bytes.TrimRight(value, " "); len(value) > Digits {
		return 0, false
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	return n, err == nil
}
