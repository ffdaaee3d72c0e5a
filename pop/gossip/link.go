package gossip

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// queueSize is the maximum number of packets that wait for one peer.
	queueSize = 1 << 14

	// MaxSendTo is the maximum number of messages that SendTo passes. If there are more, the first are dropped.
	MaxSendTo = queueSize

	// inFlight is the maximum number of unacknowledged packets to one peer.
	inFlight = 256

	// ackDelay is how long an acknowledgement waits for others to be sent with it.
	ackDelay = 2 * time.Millisecond

	// giveUp is how long an unacknowledged packet is retried.
	giveUp = 2 * time.Second

	// maxAge is the maximum age of messages that are accepted. Older ones were in a socket while
	// the node was suspended, or somebody delayed them. It allows for the time in the queue, for
	// retries, and for clocks that differ by a second.
	maxAge = maxWait + giveUp + time.Second

	// maxWait is how long messages wait to be sent for the first time.
	maxWait = 5 * time.Second

	// linger is how long messages are still sent to a peer that was declared dead. If many packets
	// are lost, it may be alive: then it refutes that, or is joined again, and is a peer again.
	linger = 3 * time.Second
)

const (
	// minAckTimeout and maxAckTimeout bound the wait for an acknowledgement. slowAckTimeout is the
	// upper bound if the round trip takes longer than that.
	minAckTimeout  = 30 * time.Millisecond
	maxAckTimeout  = 150 * time.Millisecond
	slowAckTimeout = 500 * time.Millisecond
)

// ackTimeout returns how long to wait for the acknowledgement of a packet that was sent n times,
// before it is sent again. It starts at twice the round trip, so that overloaded nodes do not get
// even more packets, and grows by half each time. A packet is sent about fifteen times before it is
// given up, or four times if nodes are slow.
func ackTimeout(n int, delay time.Duration) time.Duration {
	pause := min(max(minAckTimeout, 2*delay), slowAckTimeout)
	last := max(maxAckTimeout, pause)
	for range min(n, 6) - 1 {
		pause += pause / 2
	}
	return min(pause, last)
}

// A link is the state of the exchange with one run of another node. It outlives the membership: after
// a partition a node comes back with the same run, and replays of its old packets must still be
// refused.
type link struct {
	run    uint64
	name   string
	node   *memberlist.Node // nil unless it is a peer or lingers
	joined time.Time        // when it became a peer
	gone   time.Time        // when it was declared dead or left; zero for a peer
	number uint64           // of the last packet to it

	urgent, bulk []body    // waiting to be sent; urgent ones first
	flights      []*flight // unacknowledged packets, by number

	got        window   // numbers of its messages
	acks       []uint64 // to be sent
	ackAt      time.Time
	lastStatus uint64 // number of its last status
	clock      clock
}

// A flight is a packet that is not yet acknowledged.
type flight struct {
	number uint64
	body   body
	first  time.Time // when it was first sent
	next   time.Time // when it is sent again
	sent   int       // how often it was sent
}

// enqueue appends bodies to a queue and returns how many old ones were dropped.
func enqueue(queue *[]body, bodies []body) (dropped int) {
	*queue = append(*queue, bodies...)
	if dropped = len(*queue) - queueSize; dropped > 0 {
		*queue = slices.Delete(*queue, 0, dropped)
		return dropped
	}
	return 0
}

// take removes and returns the next body to send.
func (l *link) take() (next body, ok bool) {
	for _, queue := range []*[]body{&l.urgent, &l.bulk} {
		if len(*queue) > 0 {
			next, (*queue)[0] = (*queue)[0], body{}
			*queue = (*queue)[1:]
			if len(*queue) == 0 {
				*queue = nil
			}
			return next, true
		}
	}
	return body{}, false
}

// header returns the header of the next packet to l.
func (l *link) header(kind byte, from uint64, at int64) header {
	l.number++
	return header{kind, from, l.run, l.number, at}
}

// due appends the packets to send to l at now to out, and returns when to call it next, zero if
// nothing waits.
func (l *link) due(from uint64, now time.Time, out []outgoing, m *metrics) (_ []outgoing, next time.Time) {
	delay := l.clock.delay()
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		if over := now.Sub(f.first) >= giveUp; over {
			m.givenUp.Inc()
			return true
		}
		if !now.Before(f.next) {
			m.repeated.Inc()
			f.sent++
			f.next = now.Add(ackTimeout(f.sent, delay))
			out = append(out, outgoing{l.node, append(header{kindMessages, from, l.run, f.number, f.body.at}.packet(), f.body.bytes...)})
		}
		next = sooner(next, f.next)
		return false
	})
	for len(l.flights) < inFlight {
		body, ok := l.take()
		if !ok {
			break
		}
		if now.UnixMicro()-body.at > maxWait.Microseconds() {
			m.dropped.Inc()
			continue
		}
		h := l.header(kindMessages, from, body.at)
		l.flights = append(l.flights, &flight{h.number, body, now, now.Add(ackTimeout(1, delay)), 1})
		out = append(out, outgoing{l.node, append(h.packet(), body.bytes...)})
		next = sooner(next, now.Add(ackTimeout(1, delay)))
	}
	for len(l.acks) > 0 {
		if len(l.acks) < maxAcks && now.Before(l.ackAt) {
			next = sooner(next, l.ackAt)
			break
		}
		n := min(len(l.acks), maxAcks)
		packet := header{kindAcks, from, l.run, 0, now.UnixMicro()}.packet()
		for _, number := range l.acks[:n] {
			packet = binary.BigEndian.AppendUint64(packet, number)
		}
		l.acks = slices.Delete(l.acks, 0, n)
		out = append(out, outgoing{l.node, packet})
	}
	return out, next
}

// age returns how long ago a message was sent, given the time at by the sender's clock. It is 0 while
// that clock's offset is not known.
func (l *link) age(at int64, now time.Time) time.Duration {
	offset, ok := l.clock.offset()
	if !ok {
		return 0
	}
	return max(0, time.Duration(now.UnixMicro()-at)*time.Microsecond+offset)
}

// queueAck queues the acknowledgement of a packet.
func (l *link) queueAck(number uint64, now time.Time) {
	if len(l.acks) == 0 {
		l.ackAt = now.Add(ackDelay)
	}
	l.acks = append(l.acks, number)
}

// acknowledged handles acknowledgements.
func (l *link) acknowledged(body []byte) {
	for ; len(body) > 0; body = body[8:] {
		number := binary.BigEndian.Uint64(body)
		if i, ok := slices.BinarySearchFunc(l.flights, number, func(f *flight, n uint64) int {
			return cmp.Compare(f.number, n)
		}); ok {
			l.flights = slices.Delete(l.flights, i, i+1)
		}
	}
}

// leave drops the packets to a node that has left, and returns how many.
func (l *link) leave() (dropped int) {
	dropped = len(l.urgent) + len(l.bulk) + len(l.flights)
	l.node = nil
	l.urgent, l.bulk, l.flights, l.acks = nil, nil, nil, nil
	return dropped
}
