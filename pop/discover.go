package pop

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/gossip"
)

const (
	// discoverPause is how long a shard must be there, or gone, before the ring follows: a node
	// that restarts within that time moves no keys.
	discoverPause = 500 * time.Millisecond

	// discoverWait is how long a change that has lasted waits for others that have not, so that
	// nodes that start together move keys once. A shard that comes and goes all the time holds
	// up no other.
	discoverWait = 2 * discoverPause

	// maxKnown is the maximum number of shards that are remembered, including those of nodes
	// that are gone.
	maxKnown = 1024
)

// A discovery makes the embedded shards of the nodes the shards of the PoP: the node's own and
// those that the other nodes announce.
type discovery struct {
	members   func() []gossip.Member
	replace   func([]*memcached.Client)
	changed   chan struct{} // holds at most one: a member has come or gone
	dial      func(addr string, inside bool) *memcached.Client
	known     map[string]*memcached.Client // includes those of nodes that are gone: they may come back
	sightings sightings
}

// sightings say which shards are there and which are in the ring, by address.
type sightings map[string]*sighting

type sighting struct {
	there, inRing bool
	since         time.Time // when there changed last
}

// see notes which shards are there at now. It returns the shards that are to be in the ring, in
// order, and when to look again even if nothing changes, 0 for never. The first shards to be seen
// are in the ring at once.
func (s sightings) see(there []string, now time.Time) (ring []string, again time.Duration) {
	first := len(s) == 0
	for _, addr := range there {
		if s[addr] == nil {
			s[addr] = &sighting{inRing: first}
		}
	}
	apply, waited := true, false // all changes have lasted; one has waited long enough
	for addr, one := range s {
		if is := slices.Contains(there, addr); is != one.there {
			one.there, one.since = is, now
		}
		if lasted := now.Sub(one.since); one.there != one.inRing {
			apply = apply && lasted >= discoverPause
			waited = waited || lasted >= discoverWait
		}
	}
	for addr, one := range s {
		lasted := now.Sub(one.since)
		if (apply || waited) && lasted >= discoverPause {
			one.inRing = one.there
		}
		switch {
		case one.inRing:
			ring = append(ring, addr)
		case !one.there:
			delete(s, addr)
			continue
		}
		if one.there != one.inRing {
			pause := discoverPause - lasted
			if pause <= 0 {
				pause = discoverWait - lasted
			}
			if again == 0 || pause < again {
				again = pause
			}
		}
	}
	slices.Sort(ring)
	return ring, again
}

// metaShard is the kind of a node's metadata if it has a shard. The port follows, in two
// bytes.
const metaShard = 1

// shardMeta returns the metadata that announces the node's shard.
func shardMeta(port uint16) []byte { return binary.BigEndian.AppendUint16([]byte{metaShard}, port) }

// run follows the members until ctx is done. own is the address of the node's shard.
func (d *discovery) run(ctx context.Context, own string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		case <-timer.C:
		}
		if again := d.look(own, time.Now()); again > 0 {
			timer.Reset(again)
		}
	}
}

// look sets the shards that belong in the ring at now, and returns after how long to look again: 0
// for when a member comes or goes.
func (d *discovery) look(own string, now time.Time) (again time.Duration) {
	there := []string{own}
	for _, m := range d.members() {
		if len(m.Meta) != 3 || m.Meta[0] != metaShard {
			continue // a node without a shard
		}
		// A node that was killed is still a member, beside its new process, until it is found dead.
		there = append(there, shardAt(m.Addr, binary.BigEndian.Uint16(m.Meta[1:])))
	}
	ring, again := d.sightings.see(there, now)
	var all []*memcached.Client
	for _, addr := range ring {
		if d.known[addr] == nil {
			d.known[addr] = d.dial(addr, addr == own)
		}
		all = append(all, d.known[addr])
	}
	for addr, s := range d.known {
		switch {
		case slices.Contains(all, s):
			s.Show()
		case len(d.known) > maxKnown:
			_ = s.Close()
			delete(d.known, addr)
			fallthrough
		default:
			s.Hide()
		}
	}
	d.replace(all)
	return again
}

// shardAt returns the address of the shard of the node that gossips at addr.
func shardAt(addr string, port uint16) string {
	host, _, _ := net.SplitHostPort(addr) // memberlist's own form
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
