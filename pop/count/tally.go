package count

import (
	"slices"

	"github.com/edgelimit/edge/counter"
)

// A tally is what a node knows of the number of one window. It never exceeds what was
// really requested: clients are refused only for requests that were made.
//
// Each request is counted at one instance of a server, and no count is ever copied. So the
// number of a window is the sum of the greatest numbers that are known from each instance. The
// owner of the key is an address: several instances may be behind it, and one instance may
// have several addresses. See counter.Instance.
//
// All numbers have the layout of the limit, and are added and compared field by field: what
// does not fit a field stays at its greatest value, far above the threshold.
type tally struct {
	share           // at the instance that answered last for the shard that owns the key
	former  []stint // at other instances, and at shards that owned the key before; mostly empty
	pending uint64  // own requests that are not yet sent
	flying  uint64  // own requests that are being sent

	made   bool  // the shard that owns the key has the counter
	alone  bool  // the shard does not take increments: this node counts by itself
	misses uint8 // how often in a row the shard did not have the counter
}

// A share is what is known of the number at one instance.
type share struct {
	from   *counter.Link // over which reply came; nil if nothing came yet
	reply  uint64        // what the instance answered last
	lost   uint64        // earlier replies, of a counter that has since begun anew
	least  uint64        // at least this many were made, whatever the instance says
	unsure uint64        // own requests that were sent without an answer: they may still be counted
}

// A stint is the share of another instance, by the address at which it was asked last.
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

// hear chooses the share of the instance that answers for owner over from, with a number that
// delta is part of. An instance that is known by another address goes on there if its number
// does: the shard is written otherwise now. Nothing but the number tells two instances apart
// that have the same process number and started together, as in two containers.
func (t *tally) hear(l counter.Layout, owner string, from *counter.Link, number, delta uint64) {
	if t.from.Apart(from) {
		t.former = append(t.former, stint{owner, t.share})
		t.former[len(t.former)-1].unsure = 0
		t.share = share{unsure: t.unsure} // nobody knows which of the two counted these
	}
	if t.from != nil {
		return
	}
	i := slices.IndexFunc(t.former, func(s stint) bool {
		return s.from.Same(from) && (s.shard == owner || l.Below(number, l.Add(s.reply, delta)) == 0)
	})
	if i >= 0 {
		known := t.former[i].share
		known.least = l.Max(known.least, t.sent(l))
		known.unsure = l.Add(known.unsure, t.unsure)
		t.share, t.former = known, slices.Delete(t.former, i, i+1)
	}
}

// move makes to the owner after from. A shard that owned the key before goes on where it
// was: its number is the same, if it kept its memory, and counts once.
func (t *tally) move(from, to string) {
	if t.share != (share{}) {
		t.former = append(t.former, stint{from, t.share})
	}
	t.share, t.made, t.alone, t.misses = share{}, false, false, 0
	if i := t.stintOf(to); i >= 0 {
		t.share = t.former[i].share
		t.former = slices.Delete(t.former, i, i+1)
	}
}

// stintOf returns the place of a shard's share in former, of several the last one, or -1.
func (t *tally) stintOf(shard string) int {
	for i := len(t.former) - 1; i >= 0; i-- {
		if t.former[i].shard == shard {
			return i
		}
	}
	return -1
}

// readFormer takes in the counter of a shard that owned the key before. It reports whether
// it says more than was known, and whether it fell: see share.read.
func (t *tally) readFormer(l counter.Layout, shard string, number uint64, from *counter.Link) (more, fell bool) {
	s := t.shareOf(l, shard, number, from)
	if s == nil {
		if number == 0 {
			return false, false
		}
		t.former = append(t.former, stint{shard: shard})
		s = &t.former[len(t.former)-1].share
	}
	before := s.sent(l)
	fell = s.read(l, number, from)
	return s.sent(l) != before, fell
}

// shareOf returns the share that a number belongs to, which was read at a shard that is not
// the owner; nil if its instance is not known yet.
func (t *tally) shareOf(l counter.Layout, shard string, number uint64, from *counter.Link) *share {
	owner := t.from.Same(from)
	if owner && l.Below(t.reply, number) == 0 {
		return &t.share // it may be the owner's counter, by another address
	}
	for i := range t.former {
		if s := &t.former[i]; s.shard == shard && !s.from.Apart(from) {
			return &s.share
		}
	}
	if owner {
		return &t.share
	}
	for i := range t.former {
		if s := &t.former[i]; s.from.Same(from) {
			return &s.share
		}
	}
	return nil
}

// add takes in delta, and returns how many requests of it are not kept, since they would
// never be counted: enough wait for the same field to fill it.
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

// counted takes in owner's reply to an increment by delta, which came over from. It reports
// whether other nodes counted as well since the last reply, and whether the number fell.
//
// If it fell on the same connection, the counter was evicted: of each field that fell the
// earlier replies are kept. On another connection it may be the counter of another instance
// that nothing tells from the last one: then the greater number holds, never the sum.
func (t *tally) counted(l counter.Layout, owner string, from *counter.Link, number, delta uint64) (others, fell bool) {
	fell = l.Below(number, l.Add(t.reply, delta)) != 0
	t.hear(l, owner, from, number, delta)
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.made, t.misses = true, 0
	expected := l.Add(t.reply, delta)
	anew := l.Below(number, expected)
	if anew != 0 && t.from != nil && t.from != from {
		t.least = l.Max(t.least, number)
		t.share.read(l, number, from)
		return true, fell
	}
	t.lost = l.Add(t.lost, t.reply&anew)
	expected = expected&^anew | delta&anew
	t.reply, t.from = number, from
	return number != expected, fell
}

// unknown takes in that nobody knows whether delta was counted, or still will be. The
// requests were made all the same.
func (t *tally) unknown(l counter.Layout, owner string, from *counter.Link, delta uint64) {
	t.hear(l, owner, from, ^uint64(0), 0)
	if t.from == nil {
		t.from = from // this instance may have counted them, and no other one
	}
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.unsure = l.Add(t.unsure, delta)
}

// unsent takes back delta, and returns what is not kept of it: see add.
func (t *tally) unsent(l counter.Layout, delta uint64) (full uint64) {
	t.flying = 0
	return t.add(l, delta)
}

// readOwner takes in the owner's counter, which was read over from: see share.read.
func (t *tally) readOwner(l counter.Layout, owner string, from *counter.Link, number uint64) (fell bool) {
	if number > 0 {
		t.hear(l, owner, from, number, 0)
	}
	return t.read(l, number, from)
}

// read takes in a counter that was read over from, and not incremented. It reports whether the
// number fell; what was known stays.
func (s *share) read(l counter.Layout, number uint64, from *counter.Link) (fell bool) {
	fell = l.Below(number, s.reply) != 0
	switch greatest := l.Max(s.reply, number); greatest {
	case s.reply:
	case number:
		s.reply, s.from = number, from
	default: // part of it came over one connection, part over another
		s.reply = greatest
		if s.from != nil {
			mixed := *s.from
			s.from = &mixed
		}
	}
	return fell
}
