package shards

import (
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"time"
)

const (
	// discoverPause is how long a shard must be present or absent before the ring follows: a node that restarts
	// within that time moves no keys.
	discoverPause = 500 * time.Millisecond

	// discoverWait is the age at which a change no longer waits for newer ones to last. Waiting lets nodes that start
	// together move keys once, but a shard that keeps coming and going must not delay others.
	discoverWait = 2 * discoverPause

	// lookInterval is how often a node looks which shards its peers have.
	lookInterval = discoverPause / 10

	// Linger is how long the shard of a node that has left must still answer its peers: until all of them count
	// elsewhere and have read the counts of clients that return.
	Linger = 4 * discoverPause
)

// sightings record which shards are present and which are in the ring, by address.
type sightings map[string]*sighting

type sighting struct {
	there, inRing bool
	since         time.Time // when the field there last changed
}

// see records the shards that are present at now, and returns those that belong in the ring, sorted: changes must last
// before the ring follows. While the ring is empty, all shards but late are added immediately; late is added after the
// peers have had time to add it. see sorts there.
func (s sightings) see(there []string, late string, now time.Time) (ring []string) {
	begun := false
	for _, shard := range s {
		begun = begun || shard.inRing
	}
	slices.Sort(there)
	for _, addr := range there {
		if s[addr] == nil {
			s[addr] = &sighting{inRing: !begun && addr != late}
		}
	}
	apply, waited := true, false // apply: all changes have lasted; waited: one has waited long enough
	for addr, shard := range s {
		_, present := slices.BinarySearch(there, addr)
		if present != shard.there || !begun && addr == late && len(there) > 1 {
			shard.there, shard.since = present, now
			if addr == late {
				shard.since = now.Add(discoverPause)
			}
		}
		if shard.there != shard.inRing {
			lasted := now.Sub(shard.since)
			apply = apply && lasted >= discoverPause
			waited = waited || lasted >= discoverWait
		}
	}
	for addr, shard := range s {
		if (apply || waited) && now.Sub(shard.since) >= discoverPause {
			shard.inRing = shard.there
		}
		switch {
		case shard.inRing:
			ring = append(ring, addr)
		case !shard.there:
			delete(s, addr)
		}
	}
	slices.Sort(ring)
	return ring
}

// metaShard is the kind of a node's metadata if it has a shard. Two bytes with the port follow.
const metaShard = 1

// Meta returns the metadata with which a node announces that its shard listens at port.
func Meta(port uint16) []byte { return binary.BigEndian.AppendUint16([]byte{metaShard}, port) }

// Discover sets the ring to the shards of the peers, and adds this node's after they have added it: a node that counted
// in its own shard sooner would create counters that lack what the peers know. If the node joins no others, its shard
// is added immediately. addr is the address at which this node gossips, port that of its shard.
func (w *Watch) Discover(addr string, port uint16, joins bool) {
	w.own = shardAt(addr, port)
	if joins {
		w.late = w.own
	}
	w.look(time.Now())
}

// look sets the ring to the shards that belong in it at now.
func (w *Watch) look(now time.Time) {
	present := []string{w.own}
	for _, m := range w.o.Peers() {
		if len(m.Meta) != 3 || m.Meta[0] != metaShard {
			continue // a node without a shard
		}
		// A killed node is still a peer, like its new process, until it is declared dead.
		present = append(present, shardAt(m.Addr, binary.BigEndian.Uint16(m.Meta[1:])))
	}
	ring := w.sightings.see(present, w.late, now)
	w.replace(ring)
	for addr, s := range w.known {
		if _, inRing := slices.BinarySearch(ring, addr); !inRing {
			s.Hide()
			_ = s.Close()
			delete(w.known, addr)
		}
	}
}

// shardAt returns the address of the shard of the node that gossips at addr.
func shardAt(addr string, port uint16) string {
	host, _, _ := net.SplitHostPort(addr) // as memberlist formats it
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
