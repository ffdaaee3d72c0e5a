package gossip

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// A node pauses after it has sent messages, so that packets are full under load. Each time it sends at most burst
// messages of SendTo, so that their receiver's socket has room for them.
const (
	pause = 5 * time.Millisecond
	burst = 64
)

// An outgoingPacket is a packet and its destination.
type outgoingPacket struct {
	to     *memberlist.Node
	packet []byte
}

// A parcel is a message to one node, in a batch without a number.
type parcel struct {
	to *link
	batch
}

// send sends packets when they are due, until ctx is done. Then it sends the waiting messages to all, and returns.
func (g *Gossip) send(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done, g.sendAt = true, time.Time{}
		case <-g.wake:
		case <-timer.C:
		}
		out, next := g.due(time.Now())
		for _, o := range out {
			// Errors can be ignored: lost batches are sent again, and other packets may be lost.
			_ = g.list.SendBestEffort(o.to, o.packet)
		}
		timer.Reset(time.Until(next))
	}
}

// due returns the packets that are due at now, and when the next ones are. The packets to a node are in the order of
// their numbers.
func (g *Gossip) due(now time.Time) (out []outgoingPacket, next time.Time) {
	var status []byte
	tell := !now.Before(g.statusAt)
	if tell {
		status, g.statusAt = g.handler.Status(), now.Add(statusInterval)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	to := g.reached(now)
	if tell {
		g.tell(to, status, now)
	}
	if len(g.waiting)+len(g.bulk) > 0 && !now.Before(g.sendAt) {
		g.sendBatches(to, now)
		n := min(burst, len(g.bulk))
		for _, p := range g.bulk[:n] {
			g.carry(p.to, kindNews, now, p.entry(now))
		}
		g.bulk, g.sendAt = g.bulk[n:], now.Add(pause)
	}
	if len(g.kept) > 0 && !now.Before(g.round) {
		g.summarize(to[:min(roundPeers, len(to))], now)
	}
	out, g.out = g.out, nil
	next = g.statusAt
	if len(g.waiting)+len(g.bulk) > 0 && g.sendAt.Before(next) {
		next = g.sendAt
	}
	if len(g.kept) > 0 && g.round.Before(next) {
		next = g.round
	}
	return out, next
}

// reached returns the nodes that messages go to, in random order. mu is held.
func (g *Gossip) reached(now time.Time) (all []*link) {
	for _, l := range g.links {
		if l.reached(now) {
			all = append(all, l)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// carry queues packets for l with entries, in order. It omits batches and statuses that originate from l. mu is held.
func (g *Gossip) carry(l *link, kind byte, now time.Time, entries ...entry) {
	for len(entries) > 0 {
		l.number++
		packet := header{kind, g.run, l.run, l.number, now.UnixMicro(), l.clock.echo(now)}.packet()
		for len(entries) > 0 && len(packet)+entryHead+len(entries[0].bytes) <= headerSize+maxBody {
			if e := entries[0]; e.run != l.run || len(e.bytes) == 0 {
				packet = e.append(packet)
			}
			entries = entries[1:]
		}
		g.out = append(g.out, outgoingPacket{l.node, packet})
	}
}

// A delivery calls the handler with data from a node. mu must not be held.
type delivery func() (from string, err error)

// receive handles a packet from another node.
func (g *Gossip) receive(packet []byte, now time.Time) {
	received, refuse := g.take(packet, now)
	if refuse != "" {
		g.metrics.refused.WithLabelValues(refuse).Inc()
	}
	for _, deliver := range received {
		if from, err := deliver(); err != nil { // rate-limited: a node with another version keeps sending such messages
			g.invalid.Log(g.o.Logger, slog.LevelWarn, now,
				"cannot decode a message from another node; run the same version on all nodes", "from", from, "err", err)
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
	l := g.links[h.From]
	if h.To != g.run || l == nil || !l.reached(now) {
		return nil, stranger
	}
	transit := l.age(h.At, now)
	switch {
	case transit > maxAge:
		return nil, late
	case !l.got.take(h.Number):
		return nil, replayed
	}
	switch h.Kind {
	case kindNews, kindAsk:
		received = g.takeNews(l, entries, h.Kind == kindAsk, transit, now)
	case kindStatus:
		l.clock.take(h.At, h.Echo, now)
		l.status.owed = h.Echo == 0
		received = g.takeStatuses(l, entries, now)
	}
	return received, ""
}
