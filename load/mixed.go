package load

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// A Mixed is a Source that generates the requests of a mix.
type Mixed struct {
	mix   *mix.Mix
	from  *mix.Source
	speed float64
	looks looks
	next  mix.Request
}

// NewMixed returns a source of the requests of m, speed times as fast. If speed is zero, 1.
func NewMixed(m *mix.Mix, speed float64) *Mixed {
	return &Mixed{m, m.Source(), cmp.Or(speed, 1), looks{}, mix.Request{}}
}

// Begin aligns bursts around window boundaries with the windows of the nodes. With a speed other
// than 1, they cannot be aligned.
func (s *Mixed) Begin(now time.Time) {
	if s.speed == 1 {
		s.from.Begin(now)
	}
}

// Components returns the components of the mix.
func (s *Mixed) Components() (list []Component) {
	for _, c := range s.mix.Components() {
		list = append(list, Component{c.Name, c.Attack})
	}
	return list
}

// Addr returns the address of a client.
func (s *Mixed) Addr(client uint64) netip.Addr { return s.mix.Addr(client) }

// Next sets r to the next request.
func (s *Mixed) Next(r *Request) bool {
	q := &s.next
	if !s.from.Next(q) {
		return false
	}
	r.Due = time.Duration(float64(q.Time-s.mix.Start().UnixMicro()) / s.speed * 1e3)
	r.Client, r.Addr = q.Client, s.mix.Addr(q.Client)
	r.Look = s.looks.of(Look{Component: q.Component, Method: q.Method, Host: q.Host, Target: q.Path, Agent: q.Agent,
		Status: q.Status})
	r.probe = false
	return true
}
