package http1

import "time"

// SetMany sets the number of connections at which s begins to use loops.
func (s *Server) SetMany(n int32) { s.many = n }

// SetSlow sets how long a connection in a loop waits for an origin.
func (s *Server) SetSlow(d time.Duration) { s.loops.slow = d }

// InLoops returns the number of connections that wait in loops.
func (s *Server) InLoops() (n int) {
	s.loops.mu.Lock()
	defer s.loops.mu.Unlock()
	for _, l := range s.loops.all {
		l.mu.Lock()
		n += len(l.conns)
		l.mu.Unlock()
	}
	return n
}

// LoopsEnded reports whether s has loops and all of them have ended.
func (s *Server) LoopsEnded() bool {
	ended := len(s.loops.all) > 0
	for _, l := range s.loops.all {
		ended = ended && l.raw.Control(func(uintptr) {}) != nil
	}
	return ended
}

// Detach takes s out of Go's poller.
func (s *Socket) Detach() { s.detach() }
