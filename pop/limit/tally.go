package limit

import "slices"

// A tally is what a node knows of the number of one window. It never exceeds what was
// really requested: who is refused is refused for requests that were made.
//
// Each request is counted at one shard at most, the one that owns its key at the time, and
// no count is ever copied. So the number of a window is the sum of the greatest numbers
// that are known from each shard that has owned the key.
type tally struct {
	share           // at the shard that owns the key
	former  []stint // at those that owned it before; mostly none
	pending uint64  // own requests that are not yet sent
	flying  uint64  // own requests that are being sent
}

// A share is what is known of the number at one shard.
type share struct {
	reply uint64 // what the shard answered last
	lost  uint64 // earlier replies, of a counter that has since begun anew
	least uint64 // at least so many were made, whatever the shard says
}

// A stint is the share of a shard that owned the key before.
type stint struct {
	shard string
	share
}

// sent returns the greatest number that the shard's share has for sure.
func (s share) sent() uint64 { return max(s.lost+s.reply, s.least) }

// known returns the greatest number that the window has for sure.
func (t *tally) known() uint64 {
	n := t.sent() + t.pending + t.flying
	for i := range t.former {
		n += t.former[i].sent()
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

// readFormer takes in the counter of a shard that owned the key before, and reports
// whether it says more than was known.
func (t *tally) readFormer(shard string, number uint64) (more bool) {
	i := t.stintOf(shard)
	if i < 0 {
		if number == 0 {
			return false
		}
		i, t.former = len(t.former), append(t.former, stint{shard: shard})
	}
	before := t.former[i].sent()
	t.former[i].read(number)
	return t.former[i].sent() > before
}

// send takes what is pending.
func (t *tally) send() (delta uint64) {
	t.pending, t.flying = 0, t.pending
	return t.flying
}

// counted takes in the shard's reply to an increment by delta. It reports whether other
// nodes counted as well since the last reply.
func (t *tally) counted(number, delta uint64) (others bool) {
	t.least = t.sent() + delta
	expected := t.reply + delta
	if number < expected {
		// The counter was evicted, or the shard restarted.
		t.lost, expected = t.lost+t.reply, delta
	}
	t.reply, t.flying = number, 0
	return number > expected
}

// unknown takes in that nobody knows whether delta was counted. The requests were made
// all the same.
func (t *tally) unknown(delta uint64) {
	t.least, t.flying = t.sent()+delta, 0
}

// unsent takes back delta.
func (t *tally) unsent(delta uint64) {
	t.pending, t.flying = t.pending+delta, 0
}

// read takes in a counter that was read, and not incremented.
func (s *share) read(number uint64) { s.reply = max(s.reply, number) }
