package vote

import (
	"encoding/binary"
	"slices"
	"time"
)

// A drain is an operator's order to take a shard out of the ring, or to let it in again. The
// latest order holds on all nodes.
type drain struct {
	at int64 // when it was given, in microseconds since the Unix epoch
	on bool
}

// word returns d as it is sent. The order with the greatest word holds, so that nodes agree even
// about orders of the same microsecond.
func (d drain) word() uint64 {
	word := uint64(d.at) << 1
	if d.on {
		word |= 1
	}
	return word
}

// drainSize is the size of an encoded drain: the ID of the shard, then the time of the order in
// microseconds, shifted left by one, with the lowest bit set if the shard is out. Numbers are big
// endian.
const drainSize = 16

// Drain records an order about a shard, given at now, and reports whether the shard is known.
// It replaces all earlier orders, even those from nodes whose clocks are ahead.
func (v *Votes) Drain(addr string, on bool, now time.Time) (ok bool) {
	of := ID(addr)
	return v.merge(of, drain{max(now.UnixMicro(), v.drains[of].at+1), on})
}

// Drained reports whether an operator has taken a shard out of the ring.
func (v *Votes) Drained(addr string) bool { return v.drains[ID(addr)].on }

// AppendDrains appends orders to dst, which grows to at most longest bytes. The next call begins
// with the first order that did not fit, so that repeated calls append all of them.
func (v *Votes) AppendDrains(dst []byte, longest int) []byte {
	for i := range v.shards {
		at := (v.turn + i) % len(v.shards)
		of := ID(v.shards[at])
		d, ok := v.drains[of]
		if !ok {
			continue
		}
		if len(dst) > longest-drainSize {
			v.turn = at
			break
		}
		dst = binary.BigEndian.AppendUint64(dst, of)
		dst = binary.BigEndian.AppendUint64(dst, d.word())
	}
	return dst
}

// latestDrain is the end of the year 9999. Later orders are ignored: nothing could replace them.
const latestDrain = 253402300799 * 1e6

// ReadDrains merges the orders that another node's AppendDrains has written, and reports whether any
// of them is new.
func (v *Votes) ReadDrains(drains []byte) (news bool) {
	for ; len(drains) >= drainSize; drains = drains[drainSize:] {
		word := binary.BigEndian.Uint64(drains[8:])
		if at := int64(word >> 1); at <= latestDrain {
			news = v.merge(binary.BigEndian.Uint64(drains), drain{at, word&1 != 0}) || news
		}
	}
	return news
}

// merge keeps d unless the shard is unknown or has a later order, and reports whether it did.
func (v *Votes) merge(shard uint64, d drain) bool {
	known := slices.ContainsFunc(v.shards, func(addr string) bool { return ID(addr) == shard })
	before, ok := v.drains[shard]
	if !known || ok && d.word() <= before.word() {
		return false
	}
	if v.drains == nil {
		v.drains = map[uint64]drain{}
	}
	v.drains[shard] = d
	return true
}
