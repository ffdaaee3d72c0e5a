package pop

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

// word returns d as it is sent. Of two orders the one with the greater word holds, so that nodes
// agree also about orders of the same microsecond.
func (d drain) word() uint64 {
	word := uint64(d.at) << 1
	if d.on {
		word |= 1
	}
	return word
}

// drainSize is the size of a drain in a status and in a shard: the shard, then the time of the
// order in microseconds, shifted by one for whether the shard is out. All numbers are big endian.
const drainSize = 16

// appendDrains appends the drains to dst until it is longest bytes long. The next call begins
// with the first one that had no room, so that repeated calls append all of them.
func (v *votes) appendDrains(dst []byte, longest int) []byte {
	for i := range v.shards {
		at := (v.turn + i) % len(v.shards)
		of := voteFor(v.shards[at])
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

// latestDrain is the year 9999. Orders from later are ignored: no order could replace them.
const latestDrain = 253402300799 * 1e6

// readDrains merges drains that appendDrains of another node appended, and reports whether one of
// them is new.
func (v *votes) readDrains(drains []byte) (news bool) {
	for ; len(drains) >= drainSize; drains = drains[drainSize:] {
		word := binary.BigEndian.Uint64(drains[8:])
		if at := int64(word >> 1); at <= latestDrain {
			news = v.merge(binary.BigEndian.Uint64(drains), drain{at, word&1 != 0}) || news
		}
	}
	return news
}

// merge keeps d unless the shard is unknown or has a later order, and reports whether it did.
func (v *votes) merge(shard uint64, d drain) bool {
	known := slices.ContainsFunc(v.shards, func(addr string) bool { return voteFor(addr) == shard })
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

// drain records an order about a shard, given at now, and reports whether the shard is known.
// It replaces all earlier orders, even of nodes whose clocks are ahead.
func (v *votes) drain(addr string, on bool, now time.Time) (ok bool) {
	of := voteFor(addr)
	return v.merge(of, drain{max(now.UnixMicro(), v.drains[of].at+1), on})
}
