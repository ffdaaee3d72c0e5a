package pop

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/admin"
)

// A drain is an operator's word on a shard: whether it is to be out of the ring. The last
// word holds on all nodes.
type drain struct {
	at int64 // when it was said, in microseconds since the Unix epoch
	on bool
}

// drainSize is the size of a drain in a status and in a shard: the shard, and when it was
// said, in microseconds, shifted by one for whether it is out. All numbers are big endian.
const drainSize = 16

// appendDrainsLocked appends what was said of shards, as long as dst is not longer than
// longest. It begins where it had to end the last time, so that all is told in the end. mu is
// held.
func (v *votes) appendDrainsLocked(dst []byte, longest int) []byte {
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
		word := uint64(d.at) << 1
		if d.on {
			word |= 1
		}
		dst = binary.BigEndian.AppendUint64(dst, of)
		dst = binary.BigEndian.AppendUint64(dst, word)
	}
	return dst
}

// latestDrain is the year 9999. What was said later makes no sense, and nothing could be said
// after it.
const latestDrain = 253402300799 * 1e6

// readDrainsLocked takes in what appendDrainsLocked appended elsewhere. mu is held.
func (v *votes) readDrainsLocked(drains []byte) {
	for ; len(drains) >= drainSize; drains = drains[drainSize:] {
		word := binary.BigEndian.Uint64(drains[8:])
		if at := int64(word >> 1); at <= latestDrain {
			v.drainLocked(binary.BigEndian.Uint64(drains), drain{at, word&1 != 0})
		}
	}
}

// drainLocked takes in what was said of a shard, unless something was said later. mu is
// held.
func (v *votes) drainLocked(shard uint64, d drain) {
	known := slices.ContainsFunc(v.shards, func(s *counter.Shard) bool { return voteFor(s) == shard })
	if before, ok := v.drains[shard]; known && (!ok || d.at > before.at) {
		v.drains[shard] = d
		v.applyLocked()
	}
}

// drain takes a shard out of the ring of all nodes, or lets it in again.
func (v *votes) drain(addr string, on bool, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.shards, func(s *counter.Shard) bool { return s.Addr() == addr })
	if i < 0 {
		return admin.Unknown("pop: there is no shard " + addr)
	}
	of := voteFor(v.shards[i])
	v.drainLocked(of, drain{max(now.UnixMicro(), v.drains[of].at+1), on})
	select {
	case v.said <- struct{}{}:
	default:
	}
	return nil
}

const (
	// keepInterval is how often drains are read and stored again: a shard may have been
	// down or have lost them, and nodes without peers hear of them by nothing else.
	keepInterval = 30 * time.Second

	// keepFor is how long a shard keeps them: memcached takes more for a date.
	keepFor = 30 * 24 * time.Hour

	// maxKept is the size of what it keeps, in bytes, at most.
	maxKept = 1 << 16
)

// keep lets the shards keep the drains under key, so that they outlive a restart of all nodes:
// it reads what they have, and stores what is said, until ctx is done.
func (v *votes) keep(ctx context.Context, key string) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		for _, s := range v.all() {
			// Once more where connections had ended since; others have them as well.
			if v.keepAt(s, key) != nil {
				_ = v.keepAt(s, key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-v.said:
		}
	}
}

// keepAt merges the drains that a shard keeps with those that are known here.
func (v *votes) keepAt(s *counter.Shard, key string) error {
	return s.Update(key, func(old []byte) ([]byte, int32) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.readDrainsLocked(old)
		return v.appendDrainsLocked(nil, maxKept), int32(keepFor / time.Second)
	})
}
