package http1

import "time"

// A pace bounds how slowly a client may send a body: how long it may pause, and its average rate.
type pace struct {
	timeout time.Duration // for a pause; 0: no limit
	rate    int           // bytes per second; 0: any
	credit  time.Duration // how long the client may be silent before it falls below the rate
}

func newPace(timeout time.Duration, rate int) pace {
	p := pace{timeout: timeout, rate: rate}
	p.credit = p.grace()
	return p
}

// grace is how far the client may fall behind the rate.
func (p *pace) grace() time.Duration {
	if p.timeout > 0 {
		return p.timeout
	}
	return time.Minute
}

// deadline returns when a read that starts at now has to end, or zero. The rate does not matter
// once the origin has answered: it may be what the client waits for.
func (p *pace) deadline(now time.Time, answered bool) time.Time {
	switch {
	case p.rate > 0 && !answered:
		return now.Add(max(p.credit, 1)) // at most timeout
	case p.timeout > 0:
		return now.Add(p.timeout)
	}
	return time.Time{}
}

// read records that a read took a time and returned n bytes.
func (p *pace) read(n int, took time.Duration) {
	if p.rate > 0 {
		p.credit = min(p.credit-took+time.Duration(n)*time.Second/time.Duration(p.rate), p.grace())
	}
}
