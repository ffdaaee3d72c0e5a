package count

import (
	"slices"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
)

// A tally is a node's count of one window. It never exceeds the requests that were really made,
// so no client is refused for others.
//
// Each request is counted at one instance of a server, and counts are never copied. So the value
// of a window is the sum of the greatest values known from each instance. The owner of the key is
// an address: several instances may be behind it, and one instance may have several addresses.
// See memcached.Instance.
//
// All values have the layout of the limit, and are added and compared field by field. A field
// that overflows stays at its maximum, far above the threshold.
type tally struct {
	share            // at the instance that answered last for the shard that owns the key
	former  *[]stint // at other instances, and at former owners; mostly nil
	pending uint64   // own requests that are not yet sent
	flying  uint64   // own requests that are being sent

	made   bool  // the shard that owns the key has the counter
	alone  bool  // the shard refuses increments: this node counts alone
	misses uint8 // how often in a row the shard did not have the counter
}

// A share is the known part of a window's value at one instance.
type share struct {
	from   *memcached.Link // of the last reply; nil if there was none
	reply  uint64          // last value
	lost   uint64          // value of earlier counters, which were evicted
	least  uint64          // lower bound of the requests made, whatever the instance says
	unsure uint64          // own requests sent without an answer: they may still be counted
}

// A stint is the share of another instance, with the address where it was last asked.
type stint struct {
	shard string
	share
}

// sent returns a lower bound of the share.
func (s share) sent(l counter.Layout) uint64 { return l.Max(l.Add(s.lost, s.reply), s.least) }

// stints returns the shares at other instances, and at former owners.
func (t *tally) stints() []stint {
	if t.former == nil {
		return nil
	}
	return *t.former
}

// keepStint adds s to the stints, and returns its share.
func (t *tally) keepStint(s stint) *share {
	all := append(t.stints(), s)
	t.former = &all
	return &all[len(all)-1].share
}

// resume makes the ith stint the share at the instance that answered last.
func (t *tally) resume(i int) {
	all := *t.former
	t.share = all[i].share
	*t.former = slices.Delete(all, i, i+1)
}

// known returns a lower bound of the window's value.
func (t *tally) known(l counter.Layout) uint64 {
	n := l.Add(l.Add(t.sent(l), t.pending), t.flying)
	former := t.stints()
	for i := range former {
		n = l.Add(n, former[i].sent(l))
	}
	return n
}

// hear selects the share of the instance that answers for owner over from, with a value that
// includes delta. An instance known by another address keeps its share if the value continues
// there: the shard's address is now written differently. Only the value tells apart two instances
// with the same process ID that started together, as in two containers.
func (t *tally) hear(l counter.Layout, owner string, from *memcached.Link, value, delta uint64) {
	if t.from.Apart(from) {
		t.keepStint(stint{owner, t.share}).unsure = 0
		t.share = share{unsure: t.unsure} // either of the two may have counted these
	}
	if t.from != nil {
		return
	}
	i := slices.IndexFunc(t.stints(), func(s stint) bool {
		return s.from.Same(from) && (s.shard == owner || l.Below(value, l.Add(s.reply, delta)) == 0)
	})
	if i >= 0 {
		least, unsure := t.sent(l), t.unsure
		t.resume(i)
		t.least, t.unsure = l.Max(t.least, least), l.Add(t.share.unsure, unsure)
	}
}

// move changes the owner from one shard to another. A shard that owned the key before resumes its
// share, so that its value counts once.
func (t *tally) move(from, to string) {
	if t.share != (share{}) {
		t.keepStint(stint{from, t.share})
	}
	t.share, t.made, t.alone, t.misses = share{}, false, false, 0
	for i, s := range slices.Backward(t.stints()) {
		if s.shard == to {
			t.resume(i)
			break
		}
	}
}

// read records the value of the counter, which was read at a shard over from. It reports whether
// that is more than was known, and whether the value fell: see share.raise.
func (t *tally) read(l counter.Layout, owner, shard string, from *memcached.Link, value uint64) (more, fell bool) {
	at := t.shareOf(l, owner, shard, from, value)
	if value == 0 && at == nil || t.flying > 0 && at == &t.share {
		return false, false // the owner's value may include what is in flight, whose reply will tell
	}
	if at == nil {
		at = t.keepStint(stint{shard: shard})
	}
	before := at.sent(l)
	fell = at.raise(l, value, from)
	return at.sent(l) != before, fell
}

// shareOf returns the share of a value that was read at a shard, nil if its instance is not known
// yet.
func (t *tally) shareOf(l counter.Layout, owner, shard string, from *memcached.Link, value uint64) *share {
	if shard == owner {
		if value > 0 && t.flying == 0 {
			t.hear(l, owner, from, value, 0)
		}
		return &t.share
	}
	same := t.from.Same(from)
	if same && l.Below(t.reply, value) == 0 {
		return &t.share // it may be the owner's counter, by another address
	}
	former := t.stints()
	for i := range former {
		if s := &former[i]; s.shard == shard && !s.from.Apart(from) {
			return &s.share
		}
	}
	if same {
		return &t.share
	}
	for i := range former {
		if s := &former[i]; s.from.Same(from) {
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
// The rest waits for a reply. Requests for a full field are dropped; full is their value.
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

// keep counts the pending requests on this node alone, and returns their value.
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
func (t *tally) counted(l counter.Layout, owner string, from *memcached.Link, value, delta uint64) (others, fell bool) {
	fell = l.Below(value, l.Add(t.reply, delta)) != 0
	t.hear(l, owner, from, value, delta)
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.made, t.misses = true, 0
	expected := l.Add(t.reply, delta)
	anew := l.Below(value, expected)
	if anew != 0 && t.from != nil && t.from != from {
		t.least = l.Max(t.least, value)
		t.raise(l, value, from)
		return true, fell
	}
	t.lost = l.Add(t.lost, t.reply&anew)
	expected = expected&^anew | delta&anew
	t.reply, t.from = value, from
	return value != expected, fell
}

// unknown records that delta was sent without an answer: it may have been counted, or may be
// later. The requests were made in any case.
func (t *tally) unknown(l counter.Layout, owner string, from *memcached.Link, delta uint64) {
	t.hear(l, owner, from, ^uint64(0), 0)
	if t.from == nil {
		t.from = from // only this instance may have counted them
	}
	t.blur(from)
	t.least, t.flying = l.Add(t.sent(l), delta), 0
	t.unsure = l.Add(t.unsure, delta)
}

// unsent makes delta pending again, since it was not made, and returns how many requests are
// dropped: see add. If the shard refused it, or was missing the counter twice in a row, this node
// counts alone for the rest of the window.
func (t *tally) unsent(l counter.Layout, delta uint64, outcome memcached.Outcome) (full uint64) {
	if t.flying = 0; outcome == memcached.Absent {
		t.made = false
		t.misses++
	}
	t.alone = t.alone || outcome == memcached.Refused || t.misses > 1
	return t.add(l, delta)
}

// raise records a value that was read over from, without an increment. It reports whether the
// value fell; if so, the known value stays.
func (s *share) raise(l counter.Layout, value uint64, from *memcached.Link) (fell bool) {
	fell = l.Below(value, s.reply) != 0
	switch greatest := l.Max(s.reply, value); greatest {
	case s.reply:
	case value:
		s.reply, s.from = value, from
	default: // fields from two connections
		s.reply = greatest
		if s.from != nil {
			mixed := *s.from
			s.from = &mixed
		}
	}
	if value > 0 {
		s.blur(from)
	}
	return fell
}

// blur makes the share that of an unknown instance, if something of it came over a connection to
// one: later values of any instance may include that.
func (s *share) blur(from *memcached.Link) {
	if s.from != from && !from.Known() {
		s.from = new(memcached.Link)
	}
}
