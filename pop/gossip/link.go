package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// MaxSendTo is the maximum number of messages in a call of SendTo, and of waiting messages of all calls. Further ones
	// are dropped.
	MaxSendTo = 1 << 14

	// maxAge is the maximum age of messages that are accepted. Older ones waited in a socket while the node was suspended,
	// or an attacker delayed them. maxAge allows for repairs, and for clocks that differ by some seconds.
	maxAge = 8 * time.Second

	// linger is how long messages are still sent to a peer that was declared dead. If many packets are lost, it may be
	// alive, and soon becomes a peer again.
	linger = 3 * time.Second
)

// A link is the state of the exchange with one run of another node. It outlives the membership: after
// a partition a node comes back with the same run, and replays of its old packets must still be
// refused.
type link struct {
	run     uint64
	name    string
	node    *memberlist.Node
	foreign bool      // it is of another version, so nothing is exchanged with it
	joined  time.Time // when it became a peer
	gone    time.Time // when it was declared dead or left; zero for a peer
	leaving bool      // it has said that it is about to leave
	over    bool      // gone, and not expected back: it has left, or its node has another run
	number  uint64    // of the last packet to it

	got     window // numbers of the packets from it
	batches window // numbers of its batches
	clock   clock
	status  status
}

// reached reports whether messages go to l and are accepted from it: it is a peer, or perhaps wrongly declared dead.
func (l *link) reached(now time.Time) bool {
	return !l.foreign && (l.gone.IsZero() || !l.over && now.Sub(l.gone) < linger)
}

// age returns how long ago a packet was sent, given the time at by the sender's clock. It is 0 while
// that clock's offset is not known.
func (l *link) age(at int64, now time.Time) time.Duration {
	offset, ok := l.clock.offset()
	if !ok {
		return 0
	}
	return max(0, time.Duration(now.UnixMicro()-at)*time.Microsecond+offset)
}
