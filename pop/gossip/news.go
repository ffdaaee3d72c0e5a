package gossip

import (
	"encoding/binary"
	"slices"
	"time"
)

const (
	// roundPause is the minimum time between rounds of summaries, which go to roundPeers random nodes. While no batch
	// arrives, the time between rounds grows by a third each time.
	roundPause = 20 * time.Millisecond
	roundPeers = 2

	// recentFor is how long a batch is recent. While batches arrive, a round summarizes only nodes that have recent
	// batches, and passes these on unasked if the summaries leave room.
	recentFor = 150 * time.Millisecond

	// keepBatches is how long batches are kept for nodes that lack them, such as one that was wrongly declared dead.
	// maxKept bounds their number.
	keepBatches = linger
	maxKept     = 1 << 13

	// onTheWay is how long a batch may be in transit from the node that sends it first: until then, no node is considered
	// to lack it.
	onTheWay = 10 * time.Millisecond

	// maxAnswers bounds how many batches and questions wait to be sent in answer to summaries. Otherwise nodes that are
	// behind would make an overload worse.
	maxAnswers = 16

	// maxWaiting is the maximum number of batches that wait to be sent.
	maxWaiting = 1 << 12
)

// A batch holds messages of one node that fit in one packet. In its entry, the word is its age in microseconds.
type batch struct {
	run     uint64    // of that node
	number  uint64    // from 1, of that node's batches to all; 0 if it is for one node
	since   time.Time // when that node was given the first message
	learned time.Time // when this node got it
	bytes   []byte    // messages, each after its length, in two bytes
}

func (b batch) entry(now time.Time) entry {
	return entry{b.run, b.number, uint64(max(0, now.Sub(b.since).Microseconds())), b.bytes}
}

// appendMessage appends a message to the bytes of a batch.
func appendMessage(dst, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(message))), message...)
}

// messages splits the bytes of a batch.
func messages(b []byte) (all [][]byte, err error) {
	for len(b) > 0 {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return nil, errMalformed
		}
		end := 2 + int(binary.BigEndian.Uint16(b))
		all, b = append(all, b[2:end:end]), b[end:]
	}
	return all, nil
}

// Send passes a message of at most MaxMessage bytes to every peer. It does not block.
func (g *Gossip) Send(message []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.waiting) - 1
	if last < 0 || len(g.waiting[last].bytes)+2+len(message) > MaxStatus {
		if len(g.waiting) == maxWaiting {
			g.metrics.dropped.Inc()
			return
		}
		g.waiting, last = append(g.waiting, batch{run: g.run, since: time.Now()}), last+1
	}
	g.waiting[last].bytes = appendMessage(g.waiting[last].bytes, message)
	g.rouse()
}

// sendBatches queues packets with the waiting messages. mu is held.
func (g *Gossip) sendBatches(to []*link, now time.Time) {
	for _, b := range g.waiting {
		g.batches++
		b.number, b.learned = g.batches, now
		g.learn(b)
		all, _ := messages(b.bytes)
		g.metrics.sent.Add(float64(len(all) * len(to)))
		for _, l := range to {
			g.carry(l, kindNews, now, b.entry(now))
		}
	}
	g.waiting = nil
}

// learn keeps b for rounds, and schedules one. mu is held.
func (g *Gossip) learn(b batch) {
	if next := b.learned.Add(roundPause); len(g.kept) == 0 || next.Before(g.round) {
		g.round = next
		g.rouse()
	}
	g.kept = append(g.kept, b)
	g.kept = g.kept[max(0, len(g.kept)-maxKept):]
}

// summaries returns which of the kept batches of each node this node has. mu is held.
func (g *Gossip) summaries() map[uint64]window {
	all := map[uint64]window{}
	for _, b := range g.kept {
		w := all[b.run]
		w.take(b.number)
		all[b.run] = w
	}
	return all
}

// summarize queues packets with summaries of all nodes' batches, and with batches to pass on. A summary is an entry
// without bytes, of a window. mu is held.
func (g *Gossip) summarize(to []*link, now time.Time) {
	g.kept = slices.DeleteFunc(g.kept, func(b batch) bool { return now.Sub(b.learned) > keepBatches })
	if len(g.kept) == 0 {
		return
	}
	g.round = now.Add(max(roundPause, now.Sub(g.kept[len(g.kept)-1].learned)/3))
	pass := g.kept
	if i := slices.IndexFunc(pass, func(b batch) bool { return now.Sub(b.learned) < recentFor }); i > 0 {
		pass = pass[i:]
	}
	var all []entry
	has := g.summaries()
	for _, b := range pass {
		if w, ok := has[b.run]; ok {
			all = append(all, entry{run: b.run, number: w.highest, word: w.seen})
			delete(has, b.run)
		}
	}
	room := maxBody - len(all)%(maxBody/entryHead)*entryHead
	for _, b := range slices.Backward(pass) {
		if size := entryHead + len(b.bytes); size <= room {
			all, room = append(all, b.entry(now)), room-size
		}
	}
	for _, l := range to {
		g.carry(l, kindNews, now, all...)
	}
}

// answer queues for l the batches that its summaries lack. Unless l asked for them, answer asks l for those that this
// node lacks. mu is held.
func (g *Gossip) answer(l *link, summaries map[uint64]window, asked bool, now time.Time) {
	var all, asks []entry
	for _, b := range g.kept {
		theirs, ok := summaries[b.run]
		if ok && !theirs.has(b.number) && (asked || now.Sub(b.learned) >= onTheWay) && len(g.out)+len(all) < maxAnswers {
			all = append(all, b.entry(now))
		}
	}
	ours := g.summaries()
	for run, theirs := range summaries {
		if w := ours[run]; !asked && g.links[run] != nil && w.lacks(theirs) && len(g.out)+len(asks) < maxAnswers {
			asks = append(asks, entry{run: run, number: w.highest, word: w.seen})
		}
	}
	if len(all)+len(asks) > 0 {
		g.metrics.repeated.Add(float64(len(all)))
		g.carry(l, kindAsk, now, asks...)
		g.carry(l, kindNews, now, all...)
		g.rouse()
	}
}

// takeNews processes entries from l, and returns calls of the handler. transit is how long the packet was on its way.
// mu is held.
func (g *Gossip) takeNews(l *link, entries []entry, asked bool, transit time.Duration, now time.Time) (
	received []delivery) {
	summaries := map[uint64]window{}
	for _, e := range entries {
		if len(e.bytes) == 0 {
			summaries[e.run] = window{e.number, e.word}
			continue
		}
		o := g.links[e.run]
		all, err := messages(e.bytes)
		age := transit + time.Duration(min(e.word, uint64(time.Hour.Microseconds())))*time.Microsecond
		switch {
		case err != nil:
			g.metrics.refused.WithLabelValues(malformed).Inc()
			continue
		case o == nil || e.number > 0 && !o.batches.take(e.number): // this node's own, a stranger's, or known
			continue
		case e.number > 0:
			g.learn(batch{e.run, e.number, now.Add(-age), now, slices.Clone(e.bytes)})
		}
		g.metrics.received.Add(float64(len(all)))
		for _, m := range all {
			received = append(received, func() (string, error) { return o.name, g.handler.Receive(o.name, m, age) })
		}
	}
	if len(summaries) > 0 {
		g.answer(l, summaries, asked, now)
	}
	return received
}
