package pop

import (
	"cmp"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/gossip"
)

// discoverPause is how long the members of the PoP must stay the same before the ring
// follows, so that a node that restarts moves keys as seldom as it can.
const discoverPause = 500 * time.Millisecond

// maxKnown is how many shards are remembered, also of nodes that are gone.
const maxKnown = 1024

// A discovery makes the shards inside of the nodes the shards of the PoP: each node's own,
// and those that the others tell of.
type discovery struct {
	gossip  *gossip.Gossip
	port    uint16 // of this node's shard
	changed chan struct{}
	replace func([]*counter.Shard)
	newOwn  func(addr string) *counter.Shard // the node's own
	newAway func(addr string) *counter.Shard // another node's
	known   map[string]*counter.Shard        // also of nodes that are gone: they may come back
}

// metaShard is the kind of what a node tells of itself where it has a shard; two bytes
// follow, the port.
const metaShard = 1

func (d *discovery) meta() []byte { return binary.BigEndian.AppendUint16([]byte{metaShard}, d.port) }

// notice is told that a member has come or gone.
func (d *discovery) notice() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// run follows the members until ctx is done.
func (d *discovery) run(ctx context.Context) {
	timer := time.NewTimer(discoverPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			timer.Reset(discoverPause)
		case <-timer.C:
			d.replace(d.shards())
		}
	}
}

// shards returns the shards that there are now, by address.
func (d *discovery) shards() (all []*counter.Shard) {
	own := shardAt(d.gossip.Addr(), d.port)
	all = append(all, d.client(own, d.newOwn))
	for _, m := range d.gossip.Members() {
		if len(m.Meta) != 3 || m.Meta[0] != metaShard {
			continue // a node without a shard
		}
		addr := shardAt(m.Addr, binary.BigEndian.Uint16(m.Meta[1:]))
		// A node that was killed and came back is there twice for a time.
		if s := d.client(addr, d.newAway); !slices.Contains(all, s) {
			all = append(all, s)
		}
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
	slices.SortFunc(all, func(a, b *counter.Shard) int { return cmp.Compare(a.Addr(), b.Addr()) })
	return all
}

func (d *discovery) client(addr string, make func(string) *counter.Shard) *counter.Shard {
	if d.known[addr] == nil {
		d.known[addr] = make(addr)
	}
	return d.known[addr]
}

// shardAt returns the address of the shard of the node that gossips at addr.
func shardAt(addr string, port uint16) string {
	host, _, _ := net.SplitHostPort(addr) // memberlist's own form
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
