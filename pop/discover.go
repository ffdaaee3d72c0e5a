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
	// discoverPause is how long a shard must be present or absent before the ring follows: a node that restarts
	// within that time moves no keys.
	discoverPause = 500 * time.Millisecond

	// discoverWait is how long a change that has lasted waits for others that have not, so that nodes that
	// start together move keys once. A shard that keeps coming and going does not delay others.
	discoverWait = 2 * discoverPause

	// maxKnown is the maximum number of remembered shards, including those of nodes that have left.
	maxKnown = 1024
)

// A discovery makes the embedded shards of all nodes the shards of the PoP: the node's own and those that its
// peers announce.
type discovery struct {
	members   func() []gossip.Member
	replace   func([]*memcached.Client)
	changed   chan struct{} // capacity 1: a member has joined or left
	dial      func(addr string, inside bool) *memcached.Client
	known     map[string]*memcached.Client // includes those of nodes that have left: they may come back
	sightings sightings
}

// sightings record which shards are present and which are in the ring, by address.
type sightings map[string]*sighting

type sighting struct {
	there, inRing bool
	since         time.Time // when there last changed
}

// see records the shards that are present at now. It returns the shards that belong in the ring, in order, and
// when to look again even if nothing changes, 0 for never. The first shards are added at once.
func (s sightings) see(there []string, now time.Time) (ring []string, again time.Duration) {
	first := len(s) == 0
	for _, addr := range there {
		if s[addr] == nil {
			s[addr] = &sighting{inRing: first}
		}
	}
	apply, waited := true, false // apply: all changes have lasted; waited: one has waited long enough
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

// metaShard is the kind of a node's metadata if it has a shard. Two bytes with the port follow.
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

// look sets the shards that belong in the ring at now. It returns after how long to look again, or 0 if only a
// change of members matters.
func (d *discovery) look(own string, now time.Time) (again time.Duration) {
	there := []string{own}
	for _, m := range d.members() {
		if len(m.Meta) != 3 || m.Meta[0] != metaShard {
			continue // a node without a shard
		}
		// A killed node is still a member, beside its new process, until it is found dead.
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
	host, _, _ := net.SplitHostPort(addr) // as memberlist formats it
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
