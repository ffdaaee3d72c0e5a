package gossip

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// statusInterval is how often the others are told this node's status.
const statusInterval = 250 * time.Millisecond

// An outgoing is a packet on its way out.
type outgoing struct {
	to     *memberlist.Node
	packet []byte
}

// send sends what is due until ctx is done, and once more then.
func (g *Gossip) send(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var status time.Time // when it is due
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-g.wake:
		case <-timer.C:
		}
		now := time.Now()
		var out []outgoing
		if !now.Before(status) {
			out, status = g.statuses(now), now.Add(statusInterval)
		}
		out, next := g.due(now, out)
		for _, o := range out {
			// What is lost is sent again, so errors can be ignored.
			_ = g.list.SendBestEffort(o.to, o.packet)
		}
		timer.Reset(time.Until(sooner(next, status)))
	}
}

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due appends the packets that are to be sent at now to out, and returns when there are
// more, zero if no time is known.
func (g *Gossip) due(now time.Time, out []outgoing) (_ []outgoing, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.reached {
		if !l.gone.IsZero() && now.Sub(l.gone) >= linger {
			g.vanish(l)
		}
	}
	bodies := pack(g.messages, now)
	g.metrics.sent.Add(float64(len(g.messages) * len(g.reached)))
	g.messages = nil
	for _, l := range g.reached {
		g.metrics.dropped.Add(float64(enqueue(&l.urgent, bodies)))
		var of time.Time
		out, of = l.due(g.run, now, out, g.metrics)
		next = sooner(next, of)
	}
	return out, next
}

// statuses returns a packet with this node's status for each node that messages go to.
func (g *Gossip) statuses(now time.Time) (out []outgoing) {
	status := g.handler.Status()
	if len(status) > MaxStatus {
		panic("gossip: the status is longer than MaxStatus")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.reached {
		packet := l.header(kindStatus, g.run, now.UnixMicro()).packet()
		packet = l.clock.appendTimes(packet, now)
		out = append(out, outgoing{l.node, append(packet, status...)})
	}
	return out
}

// receive handles a packet from another node.
func (g *Gossip) receive(packet []byte) {
	now := time.Now()
	h, body, err := parsePacket(packet)
	if err != nil {
		g.metrics.refused[malformed].Inc()
		return
	}
	g.mu.Lock()
	l := g.links[h.from]
	if h.to != g.run || l == nil || l.node == nil {
		g.mu.Unlock()
		g.metrics.refused[stranger].Inc()
		return
	}
	from, age, refuse := l.name, l.age(h.at, now), ""
	switch h.kind {
	case kindMessages:
		if age > maxAge {
			refuse = late
			break
		}
		arrival := l.got.take(h.number)
		if arrival != outdated {
			// If it was received before, the earlier acknowledgement was lost.
			l.queueAck(h.number, now)
		}
		if arrival != fresh {
			refuse = replayed
		}
	case kindAcks:
		l.acknowledged(body)
	case kindStatus:
		if h.number <= l.lastStatus {
			refuse = replayed
			break
		}
		l.lastStatus = h.number
		l.clock.take(body, now)
	}
	g.mu.Unlock()
	if refuse != "" {
		g.metrics.refused[refuse].Inc()
		return
	}
	switch h.kind {
	case kindMessages:
		signal(g.wake)
		for m := range messages(body) {
			g.metrics.received.Inc()
			err = cmp.Or(err, g.handler.Receive(from, m, age))
		}
	case kindAcks:
		signal(g.wake) // there may be room for what waits
	case kindStatus:
		err = g.handler.ReceiveStatus(from, slices.Clip(body[timesSize:]))
	}
	if err != nil { // a node that sends what cannot be decoded keeps sending it
		g.invalid.Log(g.o.Logger, slog.LevelWarn, now, "cannot decode a message from another node; run the same version on all nodes", "from", from, "err", err)
	}
}
