package limit

import (
	"slices"

	"github.com/edgelimit/edge/counter"
)

// A tally is what a node knows of the number of one window. It never exceeds what was
// really requested: who is refused is refused for requests that were made.
//
// Each request is counted at one shard at most, the one that owns its key at the time, and
// no count is ever copied. So the number of a window is the sum of the greatest numbers
// that are known from each shard that has owned the key.
//
// All numbers have the layout of the limit, and are added and compared field by field: what
// does not fit a field stays at its greatest value, far above the threshold.
type tally struct {
	share           // at the shard that owns the key
	former  []stint // at those that owned it before; mostly none
	pending uint64  // own requests that are not yet sent
	flying  uint64  // own requests that are being sent
}

// A share is what is known of the number at one shard.
type share struct {
	reply  uint64 // what the shard answered last
	lost   uint64 // earlier replies, of a counter that has since begun anew
	least  uint64 // at least so many were made, whatever the shard says
	unsure uint64 // own requests that were sent without an answer: they may still be counted
}

// A stint is the share of a shard that owned the key before.
type stint struct {
	shard string
	share
}

// sent returns the greatest number that the shard's share has for sure.
func (s share) sent(l counter.Layout) uint64 { return l.Max(l.Add(s.lost, s.reply), s.least) }

// known returns the greatest number that the window has for sure.
func (t *tally) known(l counter.Layout) uint64 {
	n := l.Add(l.Add(t.sent(l), t.pending), t.flying)
	for i := range t.former {
		n = l.Add(n, t.former[i].sent(l))
	}
	return n
}

// move makes to the owner after from. A shard that owned the key before goes on where it
// was: its number is the same, if it kept its memory, and counts once.
func (t *tally) move(from, to string) {
	if t.share != (share{}) {
		t.former = append(t.former, stint{from, t.share})
	}
	t.share = share{}
	if i := t.stintOf(to); i >= 0 {
		t.share = t.former[i].share
		t.former = slices.Delete(t.former, i, i+1)
	}
}

// stintOf returns the place of a shard's share in former, or -1.
func (t *tally) stintOf(shard string) int {
	return slices.IndexFunc(t.former, func(s stint) bool { return s.shard == shard })
}

// readFormer takes in the counter of a shard that owned the key before. It reports whether
// it says more than was known, and whether it fell: see share.read.
func (t *tally) readFormer(l counter.Layout, shard string, number uint64) (more, fell bool) {
	i := t.stintOf(shard)
	if i < 0 {
		if number == 0 {
			return false, false
		}
		i, t.former = len(t.former), append(t.former, stint{shard: shard})
	}
	before := t.former[i].sent(l)
	fell = t.former[i].read(l, number)
	return t.former[i].sent(l) != before, fell
}

// add takes in delta, and returns how many requests of it are not kept, since they would
// never be counted: so many wait for the same field that it will be full.
func (t *tally) add(l counter.Layout, delta uint64) (full uint64) {
	full = l.Sum(t.pending)
	t.pending = l.Add(t.pending, delta)
	return full + l.Sum(delta) - l.Sum(t.pending)
}

// send takes of what is pending what may be sent: of each field at most budget, less what
// is unsure. What exceeds it stays until there is a reply. A field that is full is not
// counted further; full is how many requests that were.
//
// Of plain numbers it takes everything.
func (t *tally) send(l counter.Layout, budget uint64) (delta, full uint64) {
	delta = t.pending
	if l != counter.Plain {
		stopped := l.Below(l.Each(l.Stop()-1), t.reply)
		full = l.Sum(t.pending & stopped)
		t.pending &^= stopped
		delta = l.Min(t.pending, l.Sub(l.Each(budget), t.unsure))
	}
	t.pending, t.flying = t.pending-delta, delta
	return delta, full
}

// keep counts what is pending on this node alone, and returns how many requests that were.
func (t *tally) keep(l counter.Layout) (n uint64) {
	n = l.Sum(t.pending)
	t.least, t.pending = l.Add(t.sent(l), t.pending), 0
	return n
}

// counted takes in the shard's reply to an increment by delta. It reports whether other
// nodes counted as well since the last reply, and whether the number fell: then the counter
// was evicted, or the shard restarted. Of each field that fell the earlier replies are kept.
func (t *tally) counted(l counter.Layout, number, delta uint64) (others, fell bool) {
	t.least = l.Add(t.sent(l), delta)
	expected := l.Add(t.reply, delta)
	anew := l.Below(number, expected)
	t.lost = l.Add(t.lost, t.reply&anew)
	expected = expected&^anew | delta&anew
	t.reply, t.flying = number, 0
	return number != expected, anew != 0
}

// unknown takes in that nobody knows whether delta was counted, or still will be. The
// requests were made all the same.
func (t *tally) unknown(l counter.Layout, delta uint64) {
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.unsure = l.Add(t.unsure, delta)
}

// unsent takes back delta, and returns what is not kept of it: see add.
func (t *tally) unsent(l counter.Layout, delta uint64) (full uint64) {
	t.flying = 0
	return t.add(l, delta)
}

// forget forgets everything but what may still be counted, at whichever shard.
func (t *tally) forget() {
	for i := range t.former {
		t.former[i].share = share{unsure: t.former[i].unsure}
	}
	*t = tally{share: share{unsure: t.unsure}, former: t.former}
}

// read takes in a counter that was read, and not incremented. It reports whether the number
// fell; what was known stays.
func (s *share) read(l counter.Layout, number uint64) (fell bool) {
	fell = l.Below(number, s.reply) != 0
	s.reply = l.Max(s.reply, number)
	return fell
}
