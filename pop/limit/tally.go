package limit

// A tally is what a node knows of the number of one window. It never exceeds what was
// really requested: who is refused is refused for requests that were made.
type tally struct {
	reply   uint64 // what the shard answered last
	lost    uint64 // earlier replies, of a counter that has since begun anew
	least   uint64 // at least so many were made, whatever the shard says
	pending uint64 // own requests that are not yet sent
	flying  uint64 // own requests that are being sent
}

// sent returns the greatest number that the window has for sure, without the requests
// that are pending or flying.
func (t tally) sent() uint64 { return max(t.lost+t.reply, t.least) }

// known returns the greatest number that the window has for sure.
func (t tally) known() uint64 { return t.sent() + t.pending + t.flying }

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
func (t *tally) read(number uint64) { t.reply = max(t.reply, number) }
