package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
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

func (d delegate) NodeMeta(int) []byte             { return append([]byte{metaVersion}, d.g.meta...) }
func (d delegate) NotifyMsg(packet []byte)         { d.g.receive(packet, time.Now()) }
func (d delegate) GetBroadcasts(_, _ int) [][]byte { return nil }
func (d delegate) LocalState(bool) []byte          { return nil }
func (d delegate) MergeRemoteState([]byte, bool)   {}
func (d delegate) NotifyJoin(n *memberlist.Node)   { d.g.joined(n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.g.joined(n) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.g.left(n) }

// NotifyAlive refuses nodes without an address, a name, a run or metadata. Otherwise memberlist would
// decode garbage as a nameless node, and no node that hears of it could join.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	_, _, err := identify(n)
	if _, ok := netip.AddrFromSlice(n.Addr); err != nil || !ok || len(n.Meta) == 0 {
		return errMalformed
	}
	return nil
}

// identify returns the name and the run of a node. Its name in memberlist has both, so a node that is killed and
// restarted is immediately a new peer, at any address; its former self is declared dead later.
func identify(n *memberlist.Node) (name string, run uint64, err error) {
	at := strings.LastIndexByte(n.Name, '@')
	run, err = strconv.ParseUint(n.Name[at+1:], 16, 64)
	return n.Name[:max(0, at)], run, err
}

// maxLinks is the maximum number of runs whose received packets are remembered, unless more are peers.
const maxLinks = 1 << 12

// joined records that n is alive, and forgets the run that has been gone longest if there are too many.
func (g *Gossip) joined(n *memberlist.Node) {
	name, run, _ := identify(n)
	if run == g.run {
		return
	}
	node := *n // memberlist changes n later
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.links[run]
	if l == nil {
		l = &link{run: run, name: name}
		g.links[run] = l
	}
	if l.node == nil || !l.gone.IsZero() {
		l.joined, l.gone, l.over, l.leaving = time.Now(), time.Time{}, false, false
		g.o.Logger.Info("node joined the PoP", "name", name, "addr", node.Address())
	}
	l.node, l.foreign = &node, node.Meta[0] != metaVersion
	var oldest *link
	for _, was := range g.links {
		if was.gone.IsZero() {
			continue
		}
		was.over = was.over || was.name == name // an earlier run of this node
		if oldest == nil || was.gone.Before(oldest.gone) {
			oldest = was
		}
	}
	if len(g.links) > maxLinks && oldest != nil {
		delete(g.links, oldest.run)
	}
	g.failed = ""
	g.rouse()
}

// left records that n is dead or has left.
func (g *Gossip) left(n *memberlist.Node) {
	_, run, _ := identify(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.links[run]
	if l == nil || !l.gone.IsZero() {
		return
	}
	l.gone, l.over = time.Now(), l.leaving
	for other := range g.peers {
		l.over = l.over || other.name == l.name
	}
	if l.over {
		g.o.Logger.Info("node left the PoP", "name", l.name, "addr", n.Address())
	} else {
		g.o.Logger.Warn("node failed: it no longer answers", "name", l.name, "addr", n.Address())
	}
}

// Leaving records whether the peer with this name is about to leave, because memberlist does not tell such peers from
// dead ones. A peer that has restarted is no longer leaving.
func (g *Gossip) Leaving(name string, leaving bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.peers {
		if l.name == name {
			l.leaving = leaving
		}
	}
}

// peers yields the peers. mu is held.
func (g *Gossip) peers(yield func(*link) bool) {
	for _, l := range g.links {
		if l.gone.IsZero() && !l.foreign && !yield(l) {
			return
		}
	}
}

// conflictAfter is how long after a node joins statuses of its killed predecessor may still arrive, because others pass
// them on.
const conflictAfter = 6 * time.Second

// NameConflict describes another live node with the name of this node, or returns "". After a node is killed and
// restarted, memberlist lists both processes for a while. They do not conflict, since the killed one sends no status.
func (g *Gossip) NameConflict() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.peers {
		if l.name == g.o.Name && l.status.latest.Sub(l.joined) > conflictAfter {
			return fmt.Sprintf("two nodes have the name %q, those at %s and %s: give each its own", l.name, g.addr,
				l.node.Address())
		}
	}
	return ""
}

const (
	// joinInterval is how often a node tries to join missing nodes.
	joinInterval = 500 * time.Millisecond

	// joinTimeout bounds one attempt.
	joinTimeout = time.Second

	// forget is how long a node tries to join a missing peer again. It never forgets seeds.
	forget = 24 * time.Hour

	// maxMissing is the maximum number of nodes that it tries to join at the same time.
	maxMissing = 256
)

// keepJoined tries to join missing seeds and former peers, until ctx is done.
func (g *Gossip) keepJoined(ctx context.Context) {
	join := func() {
		var joining sync.WaitGroup
		for _, addr := range g.missing(ctx) {
			joining.Go(func() {
				if _, err := g.list.Join([]string{addr}); err != nil { // retried
					g.notJoined(addr, cmp.Or(errors.Unwrap(err), err)) // err is a list of one
				}
			})
		}
		joining.Wait()
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
	g.failed = fmt.Sprintf("cannot join the PoP at %s, so this node has no peers: check that a node runs there, and that "+
		"all nodes have the same gossip key (%v)", addr, err)
}

// JoinProblem describes why no node could be joined, or which node speaks another version of the gossip or has another
// key. It returns "" if there has been a peer since, or no node to join.
func (g *Gossip) JoinProblem() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := "" // the same one each time
	for _, l := range g.links {
		if l.gone.IsZero() && l.foreign {
			at = max(at, l.node.Address())
		}
	}
	if at != "" {
		return "cannot gossip with nodes of another version, such as that at " + at + ", so counts are split: run the same " +
			"version on all nodes"
	}
	return cmp.Or(g.failed, g.wrongKey.problem(time.Now()))
}

// missing returns the addresses, IP:PORT, of nodes that should be peers and are not.
func (g *Gossip) missing(ctx context.Context) []string {
	wanted := map[string]bool{}
	for _, seed := range g.o.Join {
		if err := resolve(ctx, seed, wanted); err != nil {
			g.notJoined(seed, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		if !l.gone.IsZero() && !l.over && time.Since(l.gone) <= forget && len(wanted) < maxMissing {
			wanted[l.node.Address()] = true
		}
	}
	for l := range g.peers {
		delete(wanted, l.node.Address())
	}
	delete(wanted, g.addr)
	return slices.Sorted(maps.Keys(wanted))
}

// resolve adds the addresses, IP:PORT, of a seed to wanted.
func resolve(ctx context.Context, seed string, wanted map[string]bool) error {
	host, port, _ := net.SplitHostPort(seed) // the caller of New has checked it
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, ip := range ips {
		wanted[net.JoinHostPort(ip, port)] = true
	}
	return err
}
