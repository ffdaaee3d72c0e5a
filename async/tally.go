package async

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
	from    *memcached.Link // see share
	reply   uint64          // see share
	pending uint64          // own requests that are not yet sent
	flying  uint64          // own requests that are being sent
	rest    *rest           // nil for most
}

// A rest is the part of a tally that is needed after an eviction, a missing answer or a change of owner.
type rest struct {
	lost, least, unsure uint64  // see share
	former              []stint // at other instances, and at former owners
	unmade              bool    // the shard that owns the key may not have the counter
	alone               bool    // the shard refuses increments: this node counts alone
	misses              uint8   // how many times in a row the shard did not have the counter
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

	// A value that was read while requests were being sent to an instance that is not known yet: if that is the same
	// instance, the value may include them.
	value uint64
	over  *memcached.Link // nil if there is no such value
}

// sent returns a lower bound of the share.
func (s *share) sent(l counter.Layout) uint64 { return l.Max(l.Add(s.lost, s.reply), s.least) }

// share returns the share at the instance that answered last for the shard that owns the key.
func (t *tally) share() share {
	s := share{from: t.from, reply: t.reply}
	if r := t.rest; r != nil {
		s.lost, s.least, s.unsure = r.lost, r.least, r.unsure
	}
	return s
}

// setShare replaces the share at the instance that answered last.
func (t *tally) setShare(l counter.Layout, s share) {
	t.from, t.reply = s.from, s.reply
	if t.rest != nil || s.lost|s.unsure != 0 || l.Below(s.reply, s.least) != 0 {
		r := t.more()
		r.lost, r.least, r.unsure = s.lost, s.least, s.unsure
	}
}

// more returns the rest, creating it if missing.
func (t *tally) more() *rest {
	if t.rest == nil {
		t.rest = new(rest)
	}
	return t.rest
}

// made reports whether the shard that owns the key has the counter.
func (t *tally) made() bool { return t.reply > 0 && (t.rest == nil || !t.rest.unmade) }

// alone reports whether the shard refuses increments, so that this node counts alone.
func (t *tally) alone() bool { return t.rest != nil && t.rest.alone }

// stints returns the shares at other instances, and at former owners.
func (t *tally) stints() []stint {
	if t.rest == nil {
		return nil
	}
	return t.rest.former
}

// keepStint adds s to the stints, and returns its share.
func (t *tally) keepStint(s stint) *share {
	r := t.more()
	r.former = append(r.former, s)
	return &r.former[len(r.former)-1].share
}

// takeStint removes the ith stint, and returns its share.
func (t *tally) takeStint(i int) share {
	s := t.rest.former[i].share
	t.rest.former = slices.Delete(t.rest.former, i, i+1)
	return s
}

// known returns a lower bound of the window's value.
func (t *tally) known(l counter.Layout) uint64 {
	if t.rest == nil {
		return l.Add(l.Add(t.reply, t.pending), t.flying)
	}
	s := t.share()
	n := l.Add(l.Add(s.sent(l), t.pending), t.flying)
	for i := range t.rest.former {
		n = l.Add(n, t.rest.former[i].sent(l))
	}
	return n
}

// attribute returns the share of the instance that answers for owner over from, with a value that
// includes delta. An instance known by another address keeps its share if the value continues
// there: the shard's address is now written differently. Only the value tells apart two instances
// with the same process ID that started together, as in two containers.
func (t *tally) attribute(l counter.Layout, owner string, from *memcached.Link, value, delta uint64) share {
	s := t.share()
	if s.from.Apart(from) {
		t.keepStint(stint{shard: owner, share: s}).unsure = 0
		s = share{unsure: s.unsure} // either of the two may have counted these
	}
	if s.from != nil {
		return s
	}
	i := slices.IndexFunc(t.stints(), func(s stint) bool {
		return s.from.Same(from) && (s.shard == owner || l.Below(value, l.Add(s.reply, delta)) == 0)
	})
	if i >= 0 {
		least, unsure := s.sent(l), s.unsure
		s = t.takeStint(i)
		s.least, s.unsure = l.Max(s.least, least), l.Add(s.unsure, unsure)
	}
	return s
}

// move changes the owner from one shard to another. A shard that owned the key before resumes its
// share, so that its value counts once.
func (t *tally) move(l counter.Layout, from, to string) {
	if s := t.share(); s != (share{}) {
		t.keepStint(stint{shard: from, share: s})
	}
	t.setShare(l, share{})
	if t.rest == nil {
		return
	}
	t.rest.unmade, t.rest.alone, t.rest.misses = true, false, 0
	for i, s := range slices.Backward(t.stints()) {
		if s.shard == to {
			t.setShare(l, t.takeStint(i))
			break
		}
	}
}

// read records the value of the counter, which was read at a shard over from. It reports whether
// that is more than was known, and whether the value fell: see share.raise.
func (t *tally) read(l counter.Layout, owner, shard string, from *memcached.Link, value uint64) (more, fell bool) {
	if shard == owner && value > 0 && t.flying == 0 {
		t.setShare(l, t.attribute(l, owner, from, value, 0))
	}
	own, i := t.shareOf(l, owner, shard, from, value)
	if own {
		if t.flying > 0 {
			return false, false // the value may include the increment in flight, whose reply will tell
		}
		s := t.share()
		more, fell = s.raise(l, value, from)
		t.setShare(l, s)
		return more, fell
	}
	if i < 0 {
		if value == 0 {
			return false, false
		}
		t.keepStint(stint{shard: shard, share: share{from: from}})
		i = len(t.stints()) - 1
	}
	s := &t.rest.former[i]
	if t.flying > 0 && t.from == nil {
		s.value, s.over = value, from
		return false, false
	}
	return s.raise(l, value, from)
}

// landed ends the sending of requests, and records what was read meanwhile at instances other than theirs.
func (t *tally) landed(l counter.Layout) {
	t.flying = 0
	for i := range t.stints() {
		if s := &t.rest.former[i]; s.over != nil {
			s.raise(l, s.value, s.over)
			s.over = nil
		}
	}
}

// shareOf returns whose value was read at a shard: the share at the instance that answered last, or that of the
// ith stint. i is -1 if the instance is not known yet.
func (t *tally) shareOf(l counter.Layout, owner, shard string, from *memcached.Link, value uint64) (own bool, i int) {
	same := t.from.Same(from)
	if shard == owner || same && l.Below(t.reply, value) == 0 {
		return true, -1 // it may be the owner's counter, by another address
	}
	i = slices.IndexFunc(t.stints(), func(s stint) bool { return s.shard == shard && !s.from.Apart(from) })
	if i < 0 && !same {
		i = slices.IndexFunc(t.stints(), func(s stint) bool { return s.from.Same(from) })
	}
	return i < 0 && same, i
}

// add adds delta to the pending requests, and returns how many requests are dropped because waiting
// ones already fill the field.
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
		delta = l.Min(t.pending, l.Sub(l.Each(budget), t.share().unsure))
	}
	t.pending, t.flying = t.pending-delta, delta
	return delta, full
}

// keep counts the pending requests on this node alone, and returns their value.
func (t *tally) keep(l counter.Layout) (n uint64) {
	s := t.share()
	s.least = l.Add(s.sent(l), t.pending)
	t.setShare(l, s)
	n, t.pending = l.Sum(t.pending), 0
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
	s := t.attribute(l, owner, from, value, delta)
	s.least = l.Add(s.sent(l), delta)
	t.landed(l)
	if t.rest != nil {
		t.rest.unmade, t.rest.misses = false, 0
	}
	expected := l.Add(s.reply, delta)
	anew := l.Below(value, expected)
	if anew != 0 && s.from != nil && s.from != from {
		s.least = l.Max(s.least, value)
		s.raise(l, value, from)
		t.setShare(l, s)
		return true, fell
	}
	s.lost = l.Add(s.lost, s.reply&anew)
	expected = expected&^anew | delta&anew
	s.reply, s.from = value, from
	t.setShare(l, s)
	return value != expected, fell
}

// unknown records that delta was sent without an answer: it may have been counted, or may be
// later. The requests were made in any case.
func (t *tally) unknown(l counter.Layout, owner string, from *memcached.Link, delta uint64) {
	s := t.attribute(l, owner, from, ^uint64(0), 0)
	if s.from == nil {
		s.from = from // only this instance may have counted them
	}
	s.blur(from)
	s.least = l.Add(s.sent(l), delta)
	t.landed(l)
	s.unsure = l.Add(s.unsure, delta)
	t.setShare(l, s)
}

// unsent makes delta pending again, since it was not made, and returns how many requests are
// dropped: see add. If the shard refused it, or was missing the counter twice in a row, this node
// counts alone for the rest of the window.
func (t *tally) unsent(l counter.Layout, delta uint64, outcome counter.Outcome) (full uint64) {
	t.landed(l)
	switch outcome {
	case counter.Absent:
		r := t.more()
		r.unmade = true
		r.misses++
		r.alone = r.alone || r.misses > 1
	case counter.Refused:
		t.more().alone = true
	}
	return t.add(l, delta)
}

// raise records a value that was read over from, without an increment. It reports whether it exceeds the
// known value, and whether it fell; if it fell, the known value stays.
func (s *share) raise(l counter.Layout, value uint64, from *memcached.Link) (more, fell bool) {
	before := s.sent(l)
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
	return s.sent(l) != before, l.Below(value, s.reply) != 0
}

// blur makes the share that of an unknown instance if part of it came over a connection to an
// unknown instance: later values of any instance may include that part.
func (s *share) blur(from *memcached.Link) {
	if s.from != from && !from.Known() {
		s.from = new(memcached.Link)
	}
}
