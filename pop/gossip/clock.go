package gossip

import (
	"slices"
	"time"
)

// outdatedAfter is how long a peer must be silent before its earlier statuses no longer count: a clock may have been
// set.
const outdatedAfter = 5 * time.Second

// A clock measures by how much a peer's wall clock is ahead of ours, as NTP does (RFC 5905, section 8): from the times
// of a packet there and one back, preferring the pair that was in transit for the shortest time.
type clock struct {
	peerSent   int64     // when the peer sent its last status, by its clock, in microseconds
	receivedAt time.Time // when we got it
	samples    [8]sample
	n          int // number of samples so far
}

// A sample is one measurement.
type sample struct {
	offset time.Duration // how far the peer is ahead
	delay  time.Duration // how long both packets were in transit, in total
}

// echo returns the peer's clock at now, but behind by the time that its last status was in transit. It is 0 if no
// status has arrived lately.
func (c *clock) echo(now time.Time) int64 {
	held := now.Sub(c.receivedAt)
	if held > outdatedAfter {
		return 0
	}
	return c.peerSent + max(0, held.Microseconds())
}

// take records the times of a status that was received at now.
func (c *clock) take(sent, echo int64, now time.Time) {
	if now.Sub(c.receivedAt) > outdatedAfter {
		c.n = 0
	}
	c.peerSent, c.receivedAt = sent, now
	delay := now.UnixMicro() - echo
	if delay < 0 || delay > time.Minute.Microseconds() {
		return // the peer has not heard from us lately, or a clock was set in between
	}
	offset := sent - echo - delay/2
	c.samples[c.n%len(c.samples)] = sample{time.Duration(offset) * time.Microsecond,
		time.Duration(delay) * time.Microsecond}
	c.n++
}

// offset returns how far the peer's clock is ahead of ours. ok is false while that is not
// known.
func (c *clock) offset() (offset time.Duration, ok bool) {
	known := c.samples[:min(c.n, len(c.samples))]
	if len(known) == 0 {
		return 0, false
	}
	best := slices.MinFunc(known, func(a, b sample) int { return int(a.delay - b.delay) })
	return best.offset, true
}

// mostClocks is how many clocks, those measured last, go into the median. With many nodes, measuring all takes a
// minute, and a clock that was set should be noticed earlier.
const mostClocks = 128

// median returns the median of the first mostClocks offsets: the mean of the middle two if their number is even, and 0
// without any.
func median(offsets []time.Duration) time.Duration {
	n := min(len(offsets), mostClocks)
	if n == 0 {
		return 0
	}
	slices.Sort(offsets[:n])
	return (offsets[(n-1)/2] + offsets[n/2]) / 2
}
