package gossip

import (
	"slices"
	"time"
)

const (
	// batchPause is the minimum time between batches of a node, so that packets are full under load.
	batchPause = 5 * time.Millisecond

	// roundPause is the minimum time between rounds of summaries, which go to roundPeers random nodes. While no batch
	// arrives, the time between rounds grows by a third each time.
	roundPause = 25 * time.Millisecond
	roundPeers = 2

	// recentFor is how long a batch is recent. While batches arrive, a round summarizes only nodes that have recent
	// batches, and passes these on unasked if the summaries leave room.
	recentFor = 150 * time.Millisecond

	// keepBatches is how long batches are kept for nodes that lack them, such as one that was wrongly declared dead.
	keepBatches = linger

	// onTheWay is how long a batch may be in transit from the node that sends it first: until then, no node is considered
	// to lack it.
	onTheWay = 10 * time.Millisecond

	// maxAnswers bounds how many batches and questions a node sends in answer to summaries between two rounds. Otherwise
	// nodes that are behind would make an overload worse.
	maxAnswers = 32
)

// A batch holds messages of one node to all that fit in one packet. In its entry, the word is its age in microseconds.
type batch struct {
	number  uint64    // by the node that sent it first, from 1
	since   time.Time // when that node was given the messages
	learned time.Time // when this node got it
	bytes   []byte    // packed messages
}

// news holds the last batches of one node.
type news struct {
	got  window  // numbers of the batches that have arrived
	kept []batch // in the order of their arrival, at most as many as a summary has bits
}

// entries returns a summary of the kept batches, and the batches to pass on: the recent ones, or all if idle is true.
// The summary's number is that of the newest batch. Bit i of its word, from the lowest, is set if the batch i before
// the newest is kept.
func (n *news) entries(run uint64, idle bool, now time.Time) (summary entry, pass []entry) {
	n.kept = slices.DeleteFunc(n.kept, func(b batch) bool { return now.Sub(b.learned) > keepBatches })
	summary.run = run
	for _, b := range n.kept {
		summary.number = max(summary.number, b.number)
	}
	for _, b := range n.kept {
		summary.word |= 1 << (summary.number - b.number) // 0 if it is too far behind
		if idle || now.Sub(b.learned) < recentFor {
			pass = append(pass, b.entry(run, now))
		}
	}
	return summary, pass
}

func (b batch) entry(run uint64, now time.Time) entry {
	return entry{run, b.number, uint64(max(0, now.Sub(b.since).Microseconds())), b.bytes}
}

// has reports whether the summary s includes a batch, or is too far ahead of it to tell.
func (s entry) has(number uint64) bool {
	return number <= s.number && (s.number-number >= 64 || s.word>>(s.number-number)&1 != 0)
}

// learn adds b to n, the news of a run, and schedules a round. mu is held.
func (g *Gossip) learn(run uint64, n *news, b batch) {
	g.recent[run] = n
	n.kept = append(n.kept, b)
	n.kept = slices.Delete(n.kept, 0, max(0, len(n.kept)-64))
	g.learned = b.learned
	if g.round.IsZero() {
		g.answered = 0
		g.round = b.learned.Add(roundPause)
		signal(g.wake)
	}
}

// sendBatches appends to out packets with the waiting messages, for all nodes. mu is held.
func (g *Gossip) sendBatches(now time.Time, out []outgoingPacket) []outgoingPacket {
	for _, packed := range pack(g.messages) {
		g.batches++
		b := batch{g.batches, g.since, now, packed}
		g.learn(g.run, &g.own, b)
		for _, l := range g.reached {
			out = g.carry(out, l, kindNews, now, b.entry(g.run, now))
		}
	}
	g.metrics.sent.Add(float64(len(g.messages) * len(g.reached)))
	g.messages, g.sendAt = nil, now.Add(batchPause)
	return out
}

// summarize appends to out packets with summaries of all nodes' news, and with batches to pass on, for some nodes. mu
// is held.
func (g *Gossip) summarize(now time.Time, out []outgoingPacket) []outgoingPacket {
	var all, pass []entry
	g.answered = 0
	for run, n := range g.recent {
		switch summary, batches := n.entries(run, now.Sub(g.learned) >= recentFor, now); {
		case len(n.kept) == 0:
			delete(g.recent, run)
		case len(batches) > 0:
			all, pass = append(all, summary), append(pass, batches...)
		}
	}
	g.round = time.Time{}
	if len(g.recent) > 0 {
		g.round = now.Add(max(roundPause, now.Sub(g.learned)/3))
	}
	room := maxBody - len(all)%(maxBody/entryHead)*entryHead
	for _, e := range pass {
		if size := entryHead + len(e.bytes); size <= room {
			all, room = append(all, e), room-size
		}
	}
	for _, l := range g.some(roundPeers) {
		out = g.carry(out, l, kindNews, now, all...)
	}
	return out
}

// lacks reports whether the summary s lacks a batch of another one.
func (s entry) lacks(other entry) bool {
	for i := range min(other.number, 64) {
		if other.word>>i&1 != 0 && !s.has(other.number-i) {
			return true
		}
	}
	return false
}

// answer queues for l the batches that its summaries lack. Unless l asked for them, answer asks l for those that this
// node lacks. mu is held.
func (g *Gossip) answer(l *link, summaries []entry, asked bool, now time.Time) {
	var all, asks []entry
	for _, s := range summaries {
		n := g.recent[s.run]
		if n == nil {
			n = new(news)
		}
		for _, b := range n.kept {
			if !s.has(b.number) && (asked || now.Sub(b.learned) >= onTheWay) && g.answered < maxAnswers {
				all = append(all, b.entry(s.run, now))
				g.answered++
			}
		}
		ours, _ := n.entries(s.run, false, now)
		if !asked && g.links[s.run] != nil && ours.lacks(s) && g.answered < maxAnswers {
			asks = append(asks, ours)
			g.answered++
		}
	}
	if len(all)+len(asks) > 0 {
		g.metrics.repeated.Add(float64(len(all)))
		g.answers = g.carry(g.carry(g.answers, l, kindAsk, now, asks...), l, kindNews, now, all...)
		signal(g.wake)
	}
}

// takeNews processes entries from l, and returns calls of the handler. transit is how long the packet was on its way.
// mu is held.
func (g *Gossip) takeNews(l *link, entries []entry, asked bool, transit time.Duration, now time.Time) (
	received []delivery) {
	var summaries []entry
	for _, e := range entries {
		age := transit + time.Duration(min(e.word, uint64(time.Hour.Microseconds())))*time.Microsecond
		o := g.links[e.run]
		switch {
		case len(e.bytes) == 0:
			summaries = append(summaries, e)
			continue
		case o == nil, o != l && e.number > o.news.got.highest+windowSize: // this node's own, or a stranger's
			continue
		case age > maxAge:
			g.metrics.refused[late].Inc()
			continue
		}
		all, err := messages(e.bytes)
		if err != nil {
			g.metrics.refused[malformed].Inc()
			continue
		}
		if !o.news.got.take(e.number) {
			continue
		}
		g.learn(o.run, &o.news, batch{e.number, now.Add(-age), now, slices.Clone(e.bytes)})
		for _, m := range all {
			received = append(received, g.message(o, m, age))
		}
	}
	g.answer(l, summaries, asked, now)
	return received
}
