package load

import (
	"cmp"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// A Mixed is a Source that generates the requests of a mix.
type Mixed struct {
	*mix.Mix
	from  *mix.Source
	speed float64
	looks looks
	next  mix.Request
}

// NewMixed returns a source of the requests of m, speed times as fast. If speed is zero, 1.
func NewMixed(m *mix.Mix, speed float64) *Mixed {
	return &Mixed{Mix: m, from: m.Source(), speed: cmp.Or(speed, 1), looks: looks{}}
}

// Begin aligns bursts around window boundaries with the windows of the nodes. With a speed other
// than 1, they cannot be aligned.
func (s *Mixed) Begin(now time.Time) {
	if s.speed == 1 {
		s.from.Begin(now)
	}
}

// Next sets r to the next request.
func (s *Mixed) Next(r *Request) bool {
	q := &s.next
	if !s.from.Next(q) {
		return false
	}
	*r = Request{
		Due:    time.Duration(float64(q.Time-s.Start().UnixMicro()) / s.speed * 1e3),
		Client: q.Client, Addr: s.Addr(q.Client),
		Look: s.looks.of(Look{Component: q.Component, Method: q.Method, Host: q.Host, Target: q.Path, Agent: q.Agent,
			Status: q.Status}),
	}
	return true
}
