package vote

import (
	"encoding/binary"
	"slices"
	"time"
)

// A drain is an operator's order to take a shard out of the ring, or to let it in again: the time of the order, in
// microseconds since the Unix epoch, shifted left by one, with the lowest bit set if the shard is out. The greatest
// order wins, so that nodes agree even about orders of the same microsecond. Zero stands for no order.
type drain uint64

func (d drain) at() int64 { return int64(d >> 1) }
func (d drain) on() bool  { return d&1 != 0 }

// drainSize is the size of an encoded drain: the ID of the shard, then the order. Numbers are big endian.
const drainSize = 16

// Drain records an order about a shard, given at now, and reports whether the shard is known.
// It replaces all earlier orders, even those from nodes whose clocks are ahead.
func (v *Votes) Drain(addr string, on bool, now time.Time) (ok bool) {
	id := ID(addr)
	d := drain(max(now.UnixMicro(), v.drains[id].at()+1)) << 1
	if on {
		d |= 1
	}
	return v.merge(id, d)
}

// Drained reports whether an operator has taken a shard out of the ring.
func (v *Votes) Drained(addr string) bool { return v.drains[ID(addr)].on() }

// AppendDrains appends orders to dst, which grows to at most longest bytes. The next call begins
// with the first order that did not fit, so that repeated calls append all of them.
func (v *Votes) AppendDrains(dst []byte, longest int) []byte {
	for i := range v.shards {
		at := (v.turn + i) % len(v.shards)
		id := ID(v.shards[at])
		if v.drains[id] == 0 {
			continue
		}
		if len(dst) > longest-drainSize {
			v.turn = at
			break
		}
		dst = binary.BigEndian.AppendUint64(dst, id)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.drains[id]))
	}
	return dst
}

// latestDrain is the end of the year 9999. Later orders are ignored: nothing could replace them.
const latestDrain = 253402300799 * 1e6

// ReadDrains merges the orders that another node's AppendDrains has written, and reports whether any
// of them is new.
func (v *Votes) ReadDrains(drains []byte) (news bool) {
	for ; len(drains) >= drainSize; drains = drains[drainSize:] {
		if d := drain(binary.BigEndian.Uint64(drains[8:])); d.at() <= latestDrain {
			news = v.merge(binary.BigEndian.Uint64(drains), d) || news
		}
	}
	return news
}

// merge keeps d unless the shard is unknown or has a later order, and reports whether it did.
func (v *Votes) merge(shard uint64, d drain) bool {
	known := slices.ContainsFunc(v.shards, func(addr string) bool { return ID(addr) == shard })
	if !known || d <= v.drains[shard] {
		return false
	}
	if v.drains == nil {
		v.drains = map[uint64]drain{}
	}
	v.drains[shard] = d
	return true
}
