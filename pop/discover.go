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

// A discovery makes the shards inside the nodes the shards of the PoP: the node's own and those
// that the other nodes announce.
type discovery struct {
	gossip interface {
		Addr() string
		Members() []gossip.Member
	}
	port      uint16        // of this node's shard
	changed   chan struct{} // holds at most one: a member has come or gone
	replace   func([]*memcached.Client)
	newOwn    func(addr string) *memcached.Client // the node's own
	newAway   func(addr string) *memcached.Client // another node's
	known     map[string]*memcached.Client        // includes those of nodes that are gone: they may come back
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

// metaShard is the kind of what a node tells of itself where it has a shard; two bytes
// follow, the port.
const metaShard = 1

func (d *discovery) meta() []byte { return binary.BigEndian.AppendUint16([]byte{metaShard}, d.port) }

// notice notes that a member has come or gone.
func (d *discovery) notice() { notify(d.changed) }

// run follows the members until ctx is done.
func (d *discovery) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		case <-timer.C:
		}
		if again := d.look(time.Now()); again > 0 {
			timer.Reset(again)
		}
	}
}

// look replaces the shards by those that are to be in the ring at now, and returns when to look
// again, 0 for when a member comes or goes.
func (d *discovery) look(now time.Time) (again time.Duration) {
	own := shardAt(d.gossip.Addr(), d.port)
	there := []string{own}
	for _, m := range d.gossip.Members() {
		if len(m.Meta) != 3 || m.Meta[0] != metaShard {
			continue // a node without a shard
		}
		// Until it is found dead, a node that was killed is there beside its next process.
		there = append(there, shardAt(m.Addr, binary.BigEndian.Uint16(m.Meta[1:])))
	}
	ring, again := d.sightings.see(there, now)
	var all []*memcached.Client
	for _, addr := range ring {
		if d.known[addr] == nil {
			if addr == own {
				d.known[addr] = d.newOwn(addr)
			} else {
				d.known[addr] = d.newAway(addr)
			}
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
