package count

import (
	"slices"

	"github.com/edgelimit/edge/counter"
)

// A tally is a node's count of one window. It never exceeds the requests that were really made,
// so no client is refused for others.
//
// Each request is counted at one instance of a server, and counts are never copied. So the value
// of a window is the sum of the greatest values known from each instance. The owner of the key is
// an address: several instances may be behind it, and one instance may have several addresses.
// See counter.Instance.
//
// All values have the layout of the limit, and are added and compared field by field. A field
// that overflows stays at its maximum, far above the threshold.
type tally struct {
	share           // at the instance that answered last for the shard that owns the key
	former  []stint // at other instances, and at former owners; mostly empty
	pending uint64  // own requests that are not yet sent
	flying  uint64  // own requests that are being sent

	made   bool  // the shard that owns the key has the counter
	alone  bool  // the shard refuses increments: this node counts alone
	misses uint8 // how often in a row the shard did not have the counter
}

// A share is the known part of a window's value at one instance.
type share struct {
	from   *counter.Link // of the last reply; nil if there was none
	reply  uint64        // last value
	lost   uint64        // value of earlier counters, which were evicted
	least  uint64        // lower bound of the requests made, whatever the instance says
	unsure uint64        // own requests sent without an answer: they may still be counted
}

// A stint is the share of another instance, with the address where it was last asked.
type stint struct {
	shard string
	share
}

// sent returns a lower bound of the share.
func (s share) sent(l counter.Layout) uint64 { return l.Max(l.Add(s.lost, s.reply), s.least) }

// known returns a lower bound of the window's value.
func (t *tally) known(l counter.Layout) uint64 {
	n := l.Add(l.Add(t.sent(l), t.pending), t.flying)
	for i := range t.former {
		n = l.Add(n, t.former[i].sent(l))
	}
	return n
}

// hear selects the share of the instance that answers for owner over from, with a value that
// includes delta. An instance known by another address keeps its share if the value continues
// there: the shard's address is now written differently. Only the value tells apart two instances
// with the same process ID that started together, as in two containers.
func (t *tally) hear(l counter.Layout, owner string, from *counter.Link, number, delta uint64) {
	if t.from.Apart(from) {
		t.former = append(t.former, stint{owner, t.share})
		t.former[len(t.former)-1].unsure = 0
		t.share = share{unsure: t.unsure} // either of the two may have counted these
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

// move changes the owner from one shard to another. A shard that owned the key before resumes its
// share, so that its value counts once.
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

// stintOf returns the index of a shard's last share in former, or -1.
func (t *tally) stintOf(shard string) int {
	for i := len(t.former) - 1; i >= 0; i-- {
		if t.former[i].shard == shard {
			return i
		}
	}
	return -1
}

// readFormer records the value of the counter at a former owner. It reports whether the value is
// more than was known, and whether it fell: see share.read.
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

// shareOf returns the share of a value that was read at a shard other than the owner, nil if its
// instance is not known yet.
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

// add adds delta to the pending requests, and returns how many requests are dropped because those
// that wait already fill the field.
func (t *tally) add(l counter.Layout, delta uint64) (full uint64) {
	full = l.Sum(t.pending)
	t.pending = l.Add(t.pending, delta)
	return full + l.Sum(delta) - l.Sum(t.pending)
}

// send moves pending requests to flying: at most budget per field, less those that are unsure.
// The rest waits for a reply. Requests for a full field are dropped; full is their number.
//
// Plain counters have no budget: send takes everything.
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

// keep counts the pending requests on this node alone, and returns their number.
func (t *tally) keep(l counter.Layout) (n uint64) {
	n = l.Sum(t.pending)
	t.least, t.pending = l.Add(t.sent(l), t.pending), 0
	return n
}

// counted records owner's reply to an increment by delta, which came over from. It reports
// whether other nodes have counted since the last reply, and whether the value fell.
//
// If it fell on the same connection, the counter was evicted: each field that fell keeps its
// earlier value in lost. On another connection the reply may come from an instance that cannot
// be told apart from the last one: then the greater value holds, never the sum.
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

// unknown records that delta was sent without an answer: it may have been counted, or may be
// later. The requests were made in any case.
func (t *tally) unknown(l counter.Layout, owner string, from *counter.Link, delta uint64) {
	t.hear(l, owner, from, ^uint64(0), 0)
	if t.from == nil {
		t.from = from // only this instance may have counted them
	}
	t.blur(from)
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.unsure = l.Add(t.unsure, delta)
}

// unsent makes delta pending again, and returns how many requests are dropped: see add.
func (t *tally) unsent(l counter.Layout, delta uint64) (full uint64) {
	t.flying = 0
	return t.add(l, delta)
}

// readOwner records the value of the owner's counter, read over from: see share.read.
func (t *tally) readOwner(l counter.Layout, owner string, from *counter.Link, number uint64) (fell bool) {
	if number > 0 {
		t.hear(l, owner, from, number, 0)
	}
	return t.read(l, number, from)
}

// read records a value that was read over from, without an increment. It reports whether the
// value fell; if so, the known value stays.
func (s *share) read(l counter.Layout, number uint64, from *counter.Link) (fell bool) {
	fell = l.Below(number, s.reply) != 0
	switch greatest := l.Max(s.reply, number); greatest {
	case s.reply:
	case number:
		s.reply, s.from = number, from
	default: // fields from two connections
		s.reply = greatest
		if s.from != nil {
			mixed := *s.from
			s.from = &mixed
		}
	}
	if number > 0 {
		s.blur(from)
	}
	return fell
}

// blur makes the share that of an unknown instance, if something of it came over a connection to
// one: later numbers of any instance may include that.
func (s *share) blur(from *counter.Link) {
	if s.from != from && !from.Known() {
		s.from = new(counter.Link)
	}
}
