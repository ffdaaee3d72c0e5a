package counter

// An Outcome is the result of one operation of a batch for a shard.
type Outcome uint8

const (
	NotSent Outcome = iota // provably not sent: it may be sent again
	Done                   // done by the shard
	Absent                 // not done: the item does not exist, or exists where it must not
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

// A Store writes a record with a time to live in seconds: a new one if CAS is 0, else it replaces
// the one that was read with this version.
type Store struct {
	Item  Item
	Value []byte
	TTL   int32
	CAS   uint64

	Outcome Outcome
}
