package gossip

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// queueSize is how many packets wait for one member.
	queueSize = 1 << 14

	// MaxSendTo is how many messages SendTo passes at most; of more, the first are dropped.
	MaxSendTo = queueSize

	// inFlight is how many packets to one member may be unacknowledged.
	inFlight = 256

	// ackPause is how long an acknowledgement waits for others.
	ackPause = 2 * time.Millisecond

	// giveUp is after how long an unacknowledged packet is no longer sent.
	giveUp = 2 * time.Second

	// tooOld is the age of messages that come too late to be believed: they lay in a
	// socket while the node stood still, or somebody held them back. It leaves them time
	// to wait, to be given up, and a second for the error of the clocks.
	tooOld = maxWait + giveUp + time.Second

	// maxWait is how long messages wait to be sent first.
	maxWait = 5 * time.Second

	// linger is how long a member that is found dead is sent what the members are: where
	// many packets are lost it may be alive, and is a member again as soon as it has said
	// so, or was joined again.
	linger = 3 * time.Second
)

const (
	// firstAgain and lastAgain bound how long the acknowledgement of a packet is waited
	// for, and slowAgain where packets are under way for longer than that.
	firstAgain = 30 * time.Millisecond
	lastAgain  = 150 * time.Millisecond
	slowAgain  = 500 * time.Millisecond
)

// again returns how long to wait for the acknowledgement of a packet that was sent n
// times, before it is sent once more: at first twice as long as packets are under way there
// and back, so that nodes with more to do than they can are not given more, then half as
// long again each time. So a packet is sent about fifteen times before it is given up, four
// times where nodes are slow.
func again(n int, delay time.Duration) time.Duration {
	pause := min(max(firstAgain, 2*delay), slowAgain)
	last := max(lastAgain, pause)
	for range min(n, 6) - 1 {
		pause += pause / 2
	}
	return min(pause, last)
}

// A link is what a node keeps of one run of another. It outlives the membership: a node
// that was cut off comes back with the same run, and its old packets must stay refused.
type link struct {
	run    uint64
	name   string
	node   *memberlist.Node // where it is; nil while it is no member, nor was a moment ago
	joined time.Time        // when it became one
	gone   time.Time        // when it ceased to be one
	number uint64           // of the last packet to it

	urgent, bulk []body    // that wait; urgent ones first
	flights      []*flight // unacknowledged, in the order of their numbers

	got      window   // numbers of its messages
	acks     []uint64 // to be sent
	ackAt    time.Time
	statusOf uint64 // number of its last status
	clock    clock
}

// A flight is a packet that is not acknowledged.
type flight struct {
	number uint64
	body   body
	first  time.Time // when it was sent first
	next   time.Time // when it is sent again
	sent   int       // how often it was
}

// enqueue appends bodies to a queue of l and returns how many old ones had to go.
func enqueue(queue *[]body, bodies []body) (dropped int) {
	*queue = append(*queue, bodies...)
	if dropped = len(*queue) - queueSize; dropped > 0 {
		*queue = slices.Delete(*queue, 0, dropped)
		return dropped
	}
	return 0
}

// take removes the body that is to be sent next, if there is one.
func (l *link) take() (next body, ok bool) {
	for _, queue := range []*[]body{&l.urgent, &l.bulk} {
		if len(*queue) > 0 {
			next, (*queue)[0] = (*queue)[0], body{}
			if *queue = (*queue)[1:]; len(*queue) == 0 {
				*queue = nil
			}
			return next, true
		}
	}
	return body{}, false
}

// header returns the header of the next packet to l, given at a time.
func (l *link) header(kind byte, from uint64, at int64) header {
	l.number++
	return header{kind, from, l.run, l.number, at}
}

// due appends the packets to l that are to be sent at now to out, and returns when it must be
// called next: never if that is zero.
func (l *link) due(from uint64, now time.Time, out []outgoing, m *metrics) (_ []outgoing, next time.Time) {
	earlier := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	delay := l.clock.delay()
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		if over := now.Sub(f.first) >= giveUp; over {
			m.givenUp.Inc()
			return true
		}
		if !now.Before(f.next) {
			m.repeated.Inc()
			f.sent++
			f.next = now.Add(again(f.sent, delay))
			out = append(out, outgoing{l.node, append(header{kindMessages, from, l.run, f.number, f.body.at}.packet(), f.body.bytes...)})
		}
		earlier(f.next)
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
		l.flights = append(l.flights, &flight{h.number, body, now, now.Add(again(1, delay)), 1})
		out = append(out, outgoing{l.node, append(h.packet(), body.bytes...)})
		earlier(now.Add(again(1, delay)))
	}
	for len(l.acks) > 0 {
		if len(l.acks) < maxAcks && now.Before(l.ackAt) {
			earlier(l.ackAt)
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

// age returns how long ago a body was given to the sender at a time of its clock, 0 while
// its clock is not known.
func (l *link) age(at int64, now time.Time) time.Duration {
	offset, ok := l.clock.offset()
	if !ok {
		return 0
	}
	return max(0, time.Duration(now.UnixMicro()-at)*time.Microsecond+offset)
}

// acknowledge notes that the messages of number have arrived, and are to be acknowledged.
func (l *link) acknowledge(number uint64, now time.Time) {
	if len(l.acks) == 0 {
		l.ackAt = now.Add(ackPause)
	}
	l.acks = append(l.acks, number)
}

// arrived takes in acknowledgements.
func (l *link) arrived(body []byte) {
	for ; len(body) > 0; body = body[8:] {
		number := binary.BigEndian.Uint64(body)
		if i, ok := slices.BinarySearchFunc(l.flights, number, func(f *flight, n uint64) int {
			return cmp.Compare(f.number, n)
		}); ok {
			l.flights = slices.Delete(l.flights, i, i+1)
		}
	}
}

// leave forgets what was to be sent: the node has left.
func (l *link) leave() (dropped int) {
	dropped = len(l.urgent) + len(l.bulk) + len(l.flights)
	l.node = nil
	l.urgent, l.bulk, l.flights, l.acks = nil, nil, nil, nil
	return dropped
}
