package http1

import (
	"cmp"
	"time"
)

// A Pace bounds how slowly a client may send a body: how long it may pause, and its average rate.
type Pace struct {
	timeout time.Duration // maximum pause; 0 for no limit
	rate    int           // minimum, in bytes per second; 0 for no limit
	grace   time.Duration // the maximum of credit
	credit  time.Duration // how long the client may be silent before it falls below the rate
}

// NewPace returns the Pace of a new body. A timeout or rate of zero means no limit.
func NewPace(timeout time.Duration, rate int) Pace {
	grace := cmp.Or(timeout, time.Minute)
	return Pace{timeout: timeout, rate: rate, grace: grace, credit: grace}
}

// Deadline returns when a read that starts at now must end, or zero. Once the origin has begun to answer, the rate does
// not apply: the client may be waiting for the answer.
func (p *Pace) Deadline(now time.Time, answered bool) time.Time {
	switch {
	case p.rate > 0 && !answered:
		return now.Add(max(p.credit, 1)) // at most timeout
	case p.timeout > 0:
		return now.Add(p.timeout)
	}
	return time.Time{}
}

// Read records a read of n bytes that took this long.
func (p *Pace) Read(n int, took time.Duration) {
	if p.rate > 0 {
		p.credit = min(p.credit-took+time.Duration(n)*time.Second/time.Duration(p.rate), p.grace)
	}
}
