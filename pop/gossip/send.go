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

// An outgoing is a packet on its way out.
type outgoing struct {
	to     *memberlist.Node
	packet []byte
}

// send sends what is due until ctx is done, and once more then.
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
			// What is lost is sent again, so errors can be ignored.
			_ = g.list.SendBestEffort(o.to, o.packet)
		}
		timer.Reset(time.Until(next))
	}
}

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due returns the packets that are to be sent at now, and when there are more. If last is true, no message waits for
// others.
func (g *Gossip) due(now time.Time, last bool) (out []outgoing, next time.Time) {
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

// some returns up to n nodes that messages go to, at random. mu is held.
func (g *Gossip) some(n int) []*link {
	all := slices.Collect(maps.Values(g.reached))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// carry appends packets to l with entries to out, in their order, except for what l sent first. mu is held.
func (g *Gossip) carry(out []outgoing, l *link, kind byte, now time.Time, entries ...entry) []outgoing {
	for len(entries) > 0 {
		var body []byte
		if kind == kindStatus {
			body = l.clock.appendTimes(nil, now)
		}
		for len(entries) > 0 && len(body)+entryHead+len(entries[0].bytes) <= maxBody {
			if e := entries[0]; e.run != l.run || len(e.bytes) == 0 {
				body = e.append(body)
			}
			entries = entries[1:]
		}
		out = l.packet(out, kind, g.run, now, body)
	}
	return out
}

// A delivery passes something from a node on to the handler, without mu.
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
		if err := d.do(d.from); err != nil { // a node that sends what cannot be decoded keeps sending it
			g.invalid.Log(g.o.Logger, slog.LevelWarn, now,
				"cannot decode a message from another node; run the same version on all nodes", "from", d.from, "err", err)
		}
	}
}

// take takes a packet, and returns what to do with its content, or why it is refused.
func (g *Gossip) take(packet []byte, now time.Time) (received []delivery, refuse string) {
	h, body, err := parsePacket(packet)
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
	var entries []entry
	switch h.kind {
	case kindMessages:
		var all [][]byte
		all, err = messages(body)
		for _, m := range all {
			g.metrics.received.Inc()
			received = append(received, delivery{l.name, func(from string) error { return g.handler.Receive(from, m, transit) }})
		}
	case kindNews, kindAsk:
		if entries, err = parseEntries(body, maxBody-entryHead); err == nil {
			received, err = g.takeNews(l, entries, h.kind == kindAsk, transit, now)
		}
	case kindStatus:
		if len(body) < timesSize {
			return nil, malformed
		}
		if entries, err = parseEntries(body[timesSize:], MaxStatus); err == nil {
			l.clock.take(body, now)
			received = g.takeStatuses(l, entries, now)
		}
	}
	if err != nil {
		refuse = malformed
	}
	return received, refuse
}
