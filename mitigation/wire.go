package mitigation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
)

// Encoded records have a fixed size, and contain no data that a client sent. All numbers are big endian.
//
//	 0  version: 1 in shards, 2 between nodes
//	 1  flags: 1 lifted; 2 and 4, as a number, the kind of the estimate; 8 by hand
//	 2  fields, bits of the layout
//	 4  generation
//	 8  key
//	24  start, microseconds since the Unix epoch
//	32  lifetime, microseconds
//	40  node
//	48  prev, cur
//	64  threshold
//	72  period, seconds
//	76  elapsed, microseconds
//
// Only between nodes, because shards must not store addresses:
//
//	 84  remaining lifetime, microseconds
//	 92  fingerprint of the rule, 0 if not known
//	100  address of the client, IPv4 mapped; 0 if not known
const (
	storedVersion = 1
	sentVersion   = 2

	// StoredSize is the size in bytes of a record in a shard.
	StoredSize = 84

	// SentSize is the size in bytes of a record between nodes.
	SentSize = StoredSize + 32
)

// ErrExpired means that a record has expired.
var ErrExpired = errors.New("mitigation: the record has expired")

// AppendStored appends the encoding of r for a shard, of StoredSize bytes.
func (r Record) AppendStored(dst []byte) []byte { return r.append(dst, storedVersion) }

func (r *Record) append(dst []byte, version byte) []byte {
	flags := byte(r.Why.Limit.Kind) << 1
	if r.Lifted {
		flags |= flagLifted
	}
	if r.ByHand {
		flags |= flagByHand
	}
	dst = append(slices.Grow(dst, SentSize), version, flags, r.Why.Limit.Layout.Fields, r.Why.Limit.Layout.Bits)
	dst = binary.BigEndian.AppendUint32(dst, r.Generation)
	dst = append(dst, r.Key[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Start))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Lifetime.Microseconds()))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Node))
	dst = binary.BigEndian.AppendUint64(dst, r.Why.Prev)
	dst = binary.BigEndian.AppendUint64(dst, r.Why.Cur)
	dst = binary.BigEndian.AppendUint64(dst, r.Why.Limit.Threshold)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Why.Limit.Period/1e6))
	return binary.BigEndian.AppendUint64(dst, uint64(r.Why.Elapsed))
}

// AppendSent appends the encoding of r for other nodes, of SentSize bytes. It contains the
// lifetime remaining at now, because nodes do not share a clock.
func (r Record) AppendSent(dst []byte, now time.Time) []byte {
	dst = r.append(dst, sentVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(0, r.Deadline.Sub(now).Microseconds())))
	dst = binary.BigEndian.AppendUint64(dst, r.Rule)
	if !r.Client.IsValid() {
		return append(dst, make([]byte, 16)...)
	}
	client := r.Client.As16()
	return append(dst, client[:]...)
}

// StoredTTL returns the time to live of r in a shard, in seconds: until its deadline or, if it is or implies a lift,
// MaxLifetime.
func (r *Record) StoredTTL(now time.Time) int32 {
	left := r.Deadline.Sub(now)
	if r.Lifted || r.Generation > 0 {
		left = MaxLifetime
	}
	return int32(left/time.Second) + 1 // never 0, which would mean forever
}

// ParseStored parses a record that a shard stores for key. The remaining lifetime at now is by this node's clock, and
// at most the lifetime. The error is ErrExpired, with a valid record, or says why b is not a record of the key.
func ParseStored(b []byte, key counter.Key, now time.Time) (Record, error) {
	r, err := parse(b, storedVersion, StoredSize)
	if err != nil {
		return Record{}, err
	}
	if r.Key != key {
		return Record{}, fmt.Errorf("mitigation: a record of key %v is stored under key %v", r.Key, key)
	}
	return r.remaining(time.Duration(r.End()-now.UnixMicro())*time.Microsecond, now)
}

// ParseSent parses a record that another node sent. The error is ErrExpired or says why b is
// not a record.
func ParseSent(b []byte, now time.Time) (Record, error) {
	r, err := parse(b, sentVersion, SentSize)
	if err != nil {
		return Record{}, err
	}
	r.Rule = binary.BigEndian.Uint64(b[StoredSize+8:])
	if client := netip.AddrFrom16([16]byte(b[StoredSize+16:])); client != netip.IPv6Unspecified() {
		r.Client = client.Unmap()
	}
	left := binary.BigEndian.Uint64(b[StoredSize:])
	return r.remaining(time.Duration(min(left, uint64(MaxLifetime/time.Microsecond)))*time.Microsecond, now)
}

// remaining sets the deadline from the remaining lifetime.
func (r Record) remaining(left time.Duration, now time.Time) (Record, error) {
	if left <= 0 {
		r.Deadline = now
		return r, ErrExpired
	}
	r.Deadline = now.Add(min(left, r.Lifetime))
	return r, nil
}

const (
	flagLifted = 1
	flagByHand = 8
)

// parse parses the common part of both encodings.
func parse(b []byte, version byte, size int) (Record, error) {
	if len(b) != size {
		return Record{}, fmt.Errorf("mitigation: a record of version %d has %d bytes, this one has %d", version, size, len(b))
	}
	kind := counter.Kind(b[1] &^ flagByHand >> 1)
	if b[0] != version || !kind.Known() {
		return Record{}, fmt.Errorf("mitigation: a record of version %d with flags %#x is from another release", b[0], b[1])
	}
	lifetime := binary.BigEndian.Uint64(b[32:])
	period := int64(binary.BigEndian.Uint32(b[72:])) * 1e6
	r := Record{
		Lifted:     b[1]&flagLifted != 0,
		ByHand:     b[1]&flagByHand != 0,
		Generation: binary.BigEndian.Uint32(b[4:]),
		Key:        counter.Key(b[8:24]),
		Start:      int64(binary.BigEndian.Uint64(b[24:])),
		Lifetime:   time.Duration(lifetime) * time.Microsecond,
		Node:       NodeID(binary.BigEndian.Uint64(b[40:])),
		Why: Why{
			Limit: counter.Limit{
				Threshold: binary.BigEndian.Uint64(b[64:]),
				Period:    period,
				Layout:    counter.Layout{Fields: b[2], Bits: b[3]},
				Kind:      kind,
			},
			Prev:    binary.BigEndian.Uint64(b[48:]),
			Cur:     binary.BigEndian.Uint64(b[56:]),
			Elapsed: int64(binary.BigEndian.Uint64(b[76:])),
		},
	}
	switch {
	case lifetime == 0 || lifetime > uint64(MaxLifetime/time.Microsecond):
		return Record{}, fmt.Errorf("mitigation: a record cannot live for %d µs", lifetime)
	case r.Start < 0 || r.Start > maxStart:
		return Record{}, fmt.Errorf("mitigation: a record cannot start at %d µs", r.Start)
	case !r.Why.valid() && !((r.Lifted || r.ByHand) && r.Why == Why{}):
		return Record{}, errors.New("mitigation: the numbers of a record contradict each other")
	}
	return r, nil
}

// maxStart is the year 9999, in microseconds since the Unix epoch.
const maxStart = 253402300799 * 1e6

// valid reports whether w can be evaluated.
func (w Why) valid() bool {
	return w.Limit.Layout.Known() && w.Limit.Period > 0 && w.Elapsed >= 0 && w.Elapsed < w.Limit.Period
}
