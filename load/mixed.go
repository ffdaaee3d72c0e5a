package load

import (
	"net/netip"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// A Mixed is a Source of the requests of a mix.
type Mixed struct {
	mix   *mix.Mix
	from  *mix.Source
	speed float64
	start int64 // what of the mix is due at the beginning, in microseconds since the epoch
	looks map[Look]*Look
	next  mix.Request
}

// NewMixed returns a source of the requests of m, speed times as fast; if that is zero, 1. It
// leaves out what lies before skip.
func NewMixed(m *mix.Mix, speed float64, skip time.Duration) *Mixed {
	if speed == 0 {
		speed = 1
	}
	return &Mixed{m, m.Source(), speed, m.Start().Add(skip).UnixMicro(), map[Look]*Look{}, mix.Request{}}
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

// Next makes the next request.
func (s *Mixed) Next(r *Request) bool {
	for {
		if !s.from.Next(&s.next) {
			return false
		}
		if s.next.Time >= s.start {
			break
		}
	}
	q := &s.next
	r.Due = time.Duration(float64(q.Time-s.start) / s.speed * 1e3)
	r.Client, r.Addr = q.Client, s.mix.Addr(q.Client)
	look := Look{Component: q.Component, Method: q.Method, Host: q.Host, Target: q.Path, Agent: q.Agent, Status: q.Status}
	known, ok := s.looks[look]
	if !ok {
		known = new(look)
		s.looks[look] = known
	}
	r.Look, r.probe = known, false
	return true
}
