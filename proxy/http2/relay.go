package http2

import (
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// relay relays the request to o.
func (s *Stream) relay(o *http1.Origin, relay http1.Relay) {
	c := s.c
	s.call.Start(relay, &c.server.o, time.Now())
	c.mu.Lock()
	if s.life == dead {
		s.leave()
	}
	c.mu.Unlock()
	err := s.call.Relay(s, &s.req, o)
	conns.FreeBuffer(s.taken)
	s.taken = nil
	relay.Relayed(err) // if the answer is broken, close resets the stream
}

// leave ends the exchange with the origin, unless it continues without the client. In that case, it no longer counts
// against the connection's streams: the handler bounds such exchanges. mu must be held.
func (s *Stream) leave() {
	if s.call.Leave() && !s.abandoned {
		s.abandoned = true
		s.c.done()
	}
}

func (s *Stream) Take() (data, trailers []byte, ended bool, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	conns.FreeBuffer(s.taken)
	s.taken, s.body, trailers, ended = s.body, nil, s.trailers, s.ended
	if s.taken != nil {
		c.consume(s, len(s.taken))
		c.kick() // the client may wait for its windows; meanwhile, more data may arrive
	}
	return s.taken, trailers, ended, nil
}

func (s *Stream) Arrived() bool { return false }

func (s *Stream) Await(by time.Time, stop *atomic.Bool) (n int, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.body == nil && !s.ended && !stop.Load() {
		if s.life == dead {
			return 0, errGone
		}
		if !c.wait(&s.more, by) {
			return 0, os.ErrDeadlineExceeded
		}
	}
	return len(s.body), nil
}

func (s *Stream) Wake() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.more.Broadcast()
}

func (s *Stream) Watch(*http1.Call) (stop func()) { return nil } // not needed: Conn.lose calls Leave

func (s *Stream) Flush() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.kick()
	return nil
}

func (s *Stream) Begin(a *http1.Answer, lines []byte, _ bool) error {
	c := s.c
	s.out = AppendHead(appendStatus(s.out[:0], a.Status), a, lines, appendField)
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Status >= http.StatusOK {
		s.sentStatus = a.Status // also if the stream is dead: rules have counted it
	}
	for a.Status < http.StatusOK && s.life != dead && c.err == nil && len(c.out) >= maxWaiting && !c.kick() {
		c.space.Wait() // an origin may send interim answers without end
	}
	switch {
	case s.life == dead:
		return errGone
	case a.Status < http.StatusOK:
		s.writeHead(s.out, false)
		c.kick()
	default:
		s.writeAnswerHead(s.out, a.Body == http1.NoBody)
	}
	return nil
}

// AppendHead appends the fields of an answer, except those about the origin's connection, and then those in lines.
// field appends each of them.
func AppendHead(dst []byte, a *http1.Answer, lines []byte, field func(dst, name, value []byte) []byte) []byte {
	for f := range a.Fields {
		if f.Name != http1.TE && f.Name != http1.Upgrade {
			dst = field(dst, a.NameOf(f), a.ValueOf(f))
		}
	}
	return AppendLines(dst, lines, field)
}

func (s *Stream) Send(data []byte, ended bool, trailers []byte) error {
	last := ended && len(trailers) == 0
	if len(data) > 0 || last {
		if err := s.send(data, last); err != nil {
			return err
		}
	}
	if ended && !last {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		if s.life != dead {
			s.writeHead(AppendLines(s.out[:0], trailers, appendField), true)
		}
	}
	return nil
}
