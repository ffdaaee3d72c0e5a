package gossip

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edge/internal/tick"
)

// metaVersion changes with the format of packets.
const metaVersion = 3

// A delegate receives callbacks from memberlist. They must not block.
type delegate struct{ g *Gossip }

func (d delegate) NodeMeta(int) []byte {
	meta := binary.BigEndian.AppendUint64([]byte{metaVersion}, d.g.run)
	return append(meta, d.g.meta...)
}

func (d delegate) NotifyMsg(packet []byte)         { d.g.receive(packet, time.Now()) }
func (d delegate) GetBroadcasts(_, _ int) [][]byte { return nil }
func (d delegate) LocalState(bool) []byte          { return nil }
func (d delegate) MergeRemoteState([]byte, bool)   {}
func (d delegate) NotifyJoin(n *memberlist.Node)   { d.g.joined(n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.g.joined(n) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.g.left(n) }

// NotifyAlive refuses nodes without an address, a name or metadata. Otherwise memberlist would
// decode garbage as a nameless node, and no node that hears of it could join.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if _, ok := netip.AddrFromSlice(n.Addr); !ok || n.Name == "" || len(n.Meta) == 0 {
		return errMalformed
	}
	return nil
}

// joined records that n is alive.
func (g *Gossip) joined(n *memberlist.Node) {
	if len(n.Meta) < metaHeader || n.Meta[0] != metaVersion {
		g.o.Logger.Error("cannot gossip with a node of another version; run the same version on all nodes", "name", n.Name,
			"addr", n.Address())
		g.mu.Lock()
		defer g.mu.Unlock()
		g.foreign[n.Name] = n.Address()
		return
	}
	run := binary.BigEndian.Uint64(n.Meta[1:])
	if run == g.run {
		return
	}
	node := *n // memberlist changes n later
	node.Meta = slices.Clone(n.Meta)
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.links[run]
	if l == nil {
		l = &link{run: run}
		g.links[run] = l
		g.trim()
	}
	if g.reached[run] == nil || !l.gone.IsZero() {
		l.name = n.Name[:max(0, strings.LastIndexByte(n.Name, '@'))]
		l.joined, l.gone = now, time.Time{}
		g.o.Logger.Info("node joined the PoP", "name", l.name, "addr", node.Address())
	}
	l.node = &node
	g.reached[run] = l
	for _, was := range g.reached {
		if was.name == l.name && !was.gone.IsZero() {
			g.vanish(was) // an earlier run of this node
		}
	}
	maps.DeleteFunc(g.seen, func(_ string, s sighting) bool { return s.name == l.name }) // its former address
	g.seen[node.Address()] = sighting{l.name, now}
	g.failed = ""
	signal(g.wake)
	signal(g.changed)
}

// A sighting records when a node was last a peer at an address.
type sighting struct {
	name string
	at   time.Time
}

// left records that n is dead or has left.
func (g *Gossip) left(n *memberlist.Node) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.foreign, n.Name)
	for l := range g.peers {
		if l.node.Name != n.Name {
			continue
		}
		l.gone = now
		if n.State == memberlist.StateLeft {
			delete(g.seen, n.Address())
		}
		if n.State == memberlist.StateLeft || g.isPeer(l.name) {
			g.vanish(l)
		}
		g.o.Logger.Info("node left the PoP", "name", l.name, "addr", n.Address())
		signal(g.changed)
	}
}

// peers yields the peers. mu is held.
func (g *Gossip) peers(yield func(*link) bool) {
	for _, l := range g.reached {
		if l.gone.IsZero() && !yield(l) {
			return
		}
	}
}

// isPeer reports whether a node called name is a peer. mu is held.
func (g *Gossip) isPeer(name string) bool {
	for l := range g.peers {
		if l.name == name {
			return true
		}
	}
	return false
}

// vanish removes a run from those that messages go to. mu is held.
func (g *Gossip) vanish(l *link) {
	delete(g.reached, l.run)
	l.node = nil
}

// conflictAfter is how long after a node joins statuses of its killed predecessor may still arrive, because others pass
// them on.
const conflictAfter = 6 * time.Second

// NameConflict describes two live nodes that share a name, or returns "". After a node is killed and restarted,
// memberlist lists both processes for a while. They do not conflict, since the killed one sends no status.
func (g *Gossip) NameConflict() (text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := map[string]*link{}
	for _, l := range slices.SortedFunc(g.peers, func(a, b *link) int { return a.joined.Compare(b.joined) }) {
		alive := func(namesake *link) bool { return namesake.status.latest.Sub(l.joined) > conflictAfter }
		other := ""
		switch before := names[l.name]; {
		case before != nil && alive(before):
			other = before.node.Address()
		case l.name == g.o.Name:
			other = g.addr
		}
		if other != "" && alive(l) {
			text = fmt.Sprintf("two nodes have the name %q, those at %s and %s: give each its own", l.name, other,
				l.node.Address())
		}
		names[l.name] = l
	}
	return text
}

// maxLinks is the maximum number of runs whose received packets are remembered.
const maxLinks = 1 << 12

// trim forgets the run that has been gone longest if there are too many.
func (g *Gossip) trim() {
	if len(g.links) <= maxLinks {
		return
	}
	var oldest *link
	for _, l := range g.links {
		if l.node == nil && !l.gone.IsZero() && (oldest == nil || l.gone.Before(oldest.gone)) {
			oldest = l
		}
	}
	if oldest != nil {
		delete(g.links, oldest.run)
	}
}

const (
	// joinInterval is how often a node tries to join missing nodes.
	joinInterval = 500 * time.Millisecond

	// joinTimeout bounds one attempt.
	joinTimeout = time.Second

	// forget is how long a node tries to join a missing peer again. It never forgets seeds.
	forget = 24 * time.Hour

	// maxSeen is the maximum number of nodes to rejoin.
	maxSeen = 256
)

// keepJoined tries to join missing seeds and former peers, until ctx is done.
func (g *Gossip) keepJoined(ctx context.Context) {
	var joining sync.WaitGroup
	defer joining.Wait()
	var under sync.Map // addresses that are being joined
	join := func() {
		for _, addr := range g.missing(ctx) {
			if _, busy := under.LoadOrStore(addr, true); busy {
				continue
			}
			joining.Go(func() {
				defer under.Delete(addr)
				if _, err := g.list.Join([]string{addr}); err != nil { // retried
					g.notJoined(addr, cmp.Or(errors.Unwrap(err), err)) // err is a list of one
				}
			})
		}
	}
	join()
	tick.Every(ctx, joinInterval, join)
}

// notJoined records that joining a node failed, unless there are peers.
func (g *Gossip) notJoined(addr string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range g.peers {
		return
	}
	g.failed = fmt.Sprintf("cannot join the PoP at %s, so this node has no peers: check the address, and that all nodes "+
		"have the same gossip key (%v)", addr, err)
	if len(g.seen) > 0 {
		g.failed = fmt.Sprintf("all other nodes have left or are down, so this node has no peers: nobody answers at %s (%v)",
			addr, err)
	}
}

// JoinProblem describes why no node could be joined, or which node speaks another version of the gossip. It
// returns "" if there has been a peer since, or no node to join.
func (g *Gossip) JoinProblem() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if addrs := slices.Sorted(maps.Values(g.foreign)); len(addrs) > 0 {
		return "cannot gossip with nodes of another version, so counts are split: run the same version on all nodes; " +
			"they are at " + strings.Join(addrs[:min(len(addrs), 3)], ", ")
	}
	return g.failed
}

// missing returns the addresses, IP:PORT, of nodes that should be peers and are not.
func (g *Gossip) missing(ctx context.Context) []string {
	wanted := map[string]bool{}
	for _, seed := range g.o.Join {
		addrs, err := resolve(ctx, seed)
		if err != nil {
			g.notJoined(seed, err)
		}
		for _, addr := range addrs {
			wanted[addr] = true
		}
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for addr, s := range g.seen {
		if now.Sub(s.at) > forget {
			delete(g.seen, addr)
			continue
		}
		wanted[addr] = true
	}
	for len(g.seen) > maxSeen {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(g.seen)),
			func(a, b string) int { return g.seen[a].at.Compare(g.seen[b].at) })
		delete(g.seen, oldest)
	}
	for l := range g.peers {
		g.seen[l.node.Address()] = sighting{l.name, now}
		delete(wanted, l.node.Address())
	}
	delete(wanted, g.addr)
	return slices.Sorted(maps.Keys(wanted))
}

// resolve returns the addresses, IP:PORT, of a seed.
func resolve(ctx context.Context, seed string) (addrs []string, err error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip, port))
	}
	return addrs, nil
}
