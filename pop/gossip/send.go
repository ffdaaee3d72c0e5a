package gossip

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// An outgoingPacket is a packet and its destination.
type outgoingPacket struct {
	to     *memberlist.Node
	packet []byte
}

// send sends packets when they are due, until ctx is done. Then it sends the waiting messages to all, and returns.
func (g *Gossip) send(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-g.wake:
		case <-timer.C:
		}
		out, next := g.due(time.Now(), done)
		for _, o := range out {
			// Errors can be ignored: lost batches are sent again, and other packets may be lost.
			_ = g.list.SendBestEffort(o.to, o.packet)
		}
		timer.Reset(time.Until(next))
	}
}

// sooner returns the earlier of two times; a zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due returns the packets that are due at now, and when the next ones are. If last is true, all messages to all are
// due.
func (g *Gossip) due(now time.Time, last bool) (out []outgoingPacket, next time.Time) {
	if !now.Before(g.statusAt) {
		out, g.statusAt = g.statuses(now), now.Add(statusInterval)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	next = g.statusAt
	if len(g.messages) > 0 && (last || !now.Before(g.sendAt)) {
		out = g.sendBatches(now, out)
	}
	if len(g.messages) > 0 {
		next = sooner(next, g.sendAt)
	}
	out = append(out, g.answers...)
	g.answers = nil
	if !g.round.IsZero() && !now.Before(g.round) {
		out = g.summarize(now, out)
	}
	next = sooner(next, g.round)
	if len(g.bulk) > 0 && !now.Before(g.bulkAt) {
		n := min(burst, len(g.bulk))
		out, g.bulk, g.bulkAt = append(out, g.bulk[:n]...), g.bulk[n:], now.Add(burstPause)
	}
	if len(g.bulk) > 0 {
		next = sooner(next, g.bulkAt)
	}
	return out, next
}

// some returns up to n of the nodes in reached, at random. mu is held.
func (g *Gossip) some(n int) []*link {
	all := slices.Collect(maps.Values(g.reached))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// carry appends to out packets for l with entries, in order. It omits batches and statuses that originate from l. mu is
// held.
func (g *Gossip) carry(out []outgoingPacket, l *link, kind byte, now time.Time, entries ...entry) []outgoingPacket {
	for len(entries) > 0 {
		l.number++
		packet := header{kind, g.run, l.run, l.number, now.UnixMicro(), l.clock.echo(now)}.packet()
		for len(entries) > 0 && len(packet)+entryHead+len(entries[0].bytes) <= headerSize+maxBody {
			if e := entries[0]; e.run != l.run || len(e.bytes) == 0 {
				packet = e.append(packet)
			}
			entries = entries[1:]
		}
		out = append(out, outgoingPacket{l.node, packet})
	}
	return out
}

// A delivery is a call of the handler with data from a node. mu must not be held.
type delivery struct {
	from string
	do   func(from string) error
}

// receive handles a packet from another node.
func (g *Gossip) receive(packet []byte, now time.Time) {
	received, refuse := g.take(packet, now)
	if refuse != "" {
		g.metrics.refused[refuse].Inc()
	}
	for _, d := range received {
		if err := d.do(d.from); err != nil { // rate-limited: a node with another version keeps sending such messages
			g.invalid.Log(g.o.Logger, slog.LevelWarn, now,
				"cannot decode a message from another node; run the same version on all nodes", "from", d.from, "err", err)
		}
	}
}

// take processes a packet. It returns the resulting calls of the handler, and the cause if the packet is refused.
func (g *Gossip) take(packet []byte, now time.Time) (received []delivery, refuse string) {
	h, entries, err := parsePacket(packet)
	if err != nil {
		return nil, malformed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.links[h.from]
	if h.to != g.run || l == nil || l.node == nil {
		return nil, stranger
	}
	transit := l.age(h.at, now)
	switch {
	case transit > maxAge:
		return nil, late
	case !l.got.take(h.number):
		return nil, replayed
	}
	switch h.kind {
	case kindMessages:
		for _, e := range entries {
			received = append(received, g.message(l, e.bytes, transit))
		}
	case kindNews, kindAsk:
		received = g.takeNews(l, entries, h.kind == kindAsk, transit, now)
	case kindStatus:
		l.clock.take(h.at, h.echo, now)
		received = g.takeStatuses(l, entries, now)
	}
	return received, ""
}

// message returns the delivery of a message from l.
func (g *Gossip) message(l *link, message []byte, age time.Duration) delivery {
	g.metrics.received.Inc()
	return delivery{l.name, func(from string) error { return g.handler.Receive(from, message, age) }}
}
