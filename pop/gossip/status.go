package gossip

import (
	"slices"
	"time"
)

const (
	// statusInterval is how often a node tells some peers its status.
	statusInterval = 250 * time.Millisecond

	// statusPeers is the number of random peers that it tells. It also answers peers that told it theirs, because clock
	// offsets are measured both ways. If there are at most fewPeers, it tells all, and they pass nothing on.
	statusPeers = 4
	fewPeers    = 16

	// everyNodes is the size of a PoP up to which every status is passed on. In a PoP twice as large, every second one is,
	// and so on, so that the traffic of a node does not grow with the PoP.
	everyNodes = 64

	// copies is how many times a node passes a status on. If 30% of packets are lost, one node in 270 misses it.
	copies = 8
)

// A status is the state of the exchange of statuses with another node. In an entry, the number is the version, and the
// word is 1 if the receivers pass the status on.
type status struct {
	version uint64    // of the last one that was received
	latest  time.Time // when that was received, from whichever node
	owed    bool      // the other node has sent its own directly, before it has heard this node's

	pass entry // to pass on; its version may be older
	left int   // how often to pass it on
}

// tell queues packets for some of others, with this node's status and those that it passes on. mu is held.
func (g *Gossip) tell(others []*link, status []byte, now time.Time) {
	if len(status) > MaxStatus {
		panic("gossip: the status is longer than MaxStatus")
	}
	g.version++
	own := entry{run: g.run, number: g.version, bytes: status}
	few := len(others) <= fewPeers
	if !few && g.version%uint64(len(others)/everyNodes+1) == 0 {
		own.word = 1
	}
	var to []*link
	for i, l := range others {
		if few || l.status.owed || i < statusPeers {
			to = append(to, l)
		}
	}
	all := []entry{own}
	for _, l := range g.links {
		if l.status.left > 0 {
			l.status.left -= len(to)
			all = append(all, l.status.pass)
		}
	}
	for _, l := range to {
		l.status.owed = false
		g.carry(l, kindStatus, now, all...)
	}
}

// takeStatuses processes entries from l, and returns calls of the handler. mu is held.
func (g *Gossip) takeStatuses(l *link, entries []entry, now time.Time) (received []delivery) {
	for _, e := range entries {
		o := g.links[e.run]
		if o == nil || e.number <= o.status.version { // this node's own, or an older one
			continue
		}
		o.status.version, o.status.latest = e.number, now
		if e.word == 1 {
			o.status.pass, o.status.left = e, copies
			o.status.pass.bytes = slices.Clone(e.bytes)
		}
		received = append(received, func() (string, error) {
			return o.name, g.handler.ReceiveStatus(o.name, e.bytes, o != l)
		})
	}
	return received
}
