// Package vote decides which shards are out of the ring: those that an operator drains, and those that most live nodes
// consider down. All nodes hear the same votes and orders, so they decide alike. A node that cannot reach a shard that
// most others reach does not change the ring.
package vote

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// OutAfter is how long most nodes must vote against a shard before it leaves the ring, so
	// that a short silence moves no keys.
	OutAfter = time.Second

	// InAfter is how long the votes must have ended before the shard comes back. It doubles
	// each time the shard leaves again within calm, up to maxInAfter.
	InAfter    = 3 * time.Second
	maxInAfter = time.Minute
	calm       = 5 * time.Minute
)

// Votes holds what votes and orders have decided about a PoP's shards. It is plain state: no method blocks, reads a
// clock or calls back. The zero value has no shards. It is not safe for concurrent use.
type Votes struct {
	shards    []string // addresses
	standings map[string]*standing
	drains    map[uint64]drain // by ID
	turn      int              // index in shards of the first drain that did not fit
}

// A standing is the result of the votes about a shard.
type standing struct {
	bad     bool      // most nodes vote against it
	since   time.Time // when bad last changed
	out     bool
	outAt   time.Time // when it last left the ring
	inAfter time.Duration
}

// ID returns the ID of a shard in messages between nodes.
func ID(addr string) uint64 { return xxhash.Sum64String(addr) }

// Replace sets the shards, by address. Shards that stay keep their standing. Drains are kept, even
// those of shards that leave.
func (v *Votes) Replace(shards []string) {
	standings := map[string]*standing{}
	for _, addr := range shards {
		if standings[addr] = v.standings[addr]; standings[addr] == nil {
			standings[addr] = new(standing)
		}
	}
	v.shards, v.standings = shards, standings
}

// Count counts the votes at now. against has an element for each live node, this one included: the
// IDs of the shards that it votes against. A tie is in favor of the shard.
func (v *Votes) Count(against [][]uint64, now time.Time) {
	for _, addr := range v.shards {
		n := 0
		for _, ids := range against {
			if slices.Contains(ids, ID(addr)) {
				n++
			}
		}
		s := v.standings[addr]
		if bad := 2*n > len(against); bad != s.bad {
			s.bad, s.since = bad, now
		}
		switch lasted := now.Sub(s.since); {
		case s.bad && !s.out && lasted >= OutAfter:
			s.out = true
			s.inAfter = min(2*s.inAfter, maxInAfter)
			if s.outAt.IsZero() || now.Sub(s.outAt) > calm {
				s.inAfter = InAfter
			}
			s.outAt = now
		case !s.bad && s.out && lasted >= s.inAfter:
			s.out = false
		}
	}
}

// Out returns the sorted addresses of the shards to keep out of the ring. Operators may empty the
// ring; votes may not, since that would gain nothing.
func (v *Votes) Out() []string {
	var out, voted []string
	for _, addr := range v.shards {
		switch {
		case v.Drained(addr):
			out = append(out, addr)
		case v.standings[addr].out:
			voted = append(voted, addr)
		}
	}
	if len(out)+len(voted) < len(v.shards) {
		out = append(out, voted...)
	}
	slices.Sort(out)
	return out
}

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

// ReadDrains merges the orders that another node's AppendDrains has written.
func (v *Votes) ReadDrains(drains []byte) {
	for ; len(drains) >= drainSize; drains = drains[drainSize:] {
		if d := drain(binary.BigEndian.Uint64(drains[8:])); d.at() <= latestDrain {
			v.merge(binary.BigEndian.Uint64(drains), d)
		}
	}
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
