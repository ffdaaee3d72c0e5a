// Package conns keeps the connections that a server serves, so that it can end them.
package conns

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// A Set holds the connections of a server. The zero value is ready to use, concurrently.
type Set[C comparable] struct {
	mu      sync.Mutex // guards the fields below
	all     map[C]struct{}
	closed  bool
	serving sync.WaitGroup
}

// Serve adds c and calls serve, in a new goroutine, with the address of conn's client, which a PROXY
// protocol header may tell. Afterwards it calls ended, unless that is nil, and removes c. If Close was
// called before, it closes conn instead of serving.
func (s *Set[C]) Serve(c C, conn net.Conn, ended func(), serve func(peer netip.AddrPort)) {
	if ended == nil {
		ended = func() {}
	}
	if !s.add(c) {
		_ = conn.Close()
		ended()
		return
	}
	go func() {
		defer s.Remove(c)
		defer ended()
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			serve(tcp.AddrPort())
			return
		}
		peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		serve(peer)
	}()
}

// add adds c, unless Close was called.
func (s *Set[C]) add(c C) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.all == nil {
		s.all = map[C]struct{}{}
	}
	s.all[c] = struct{}{}
	s.serving.Add(1)
	return true
}

// Remove removes c if that has not been done.
func (s *Set[C]) Remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[c]; ok {
		delete(s.all, c)
		s.serving.Done()
	}
}

// End calls end for each connection until it has returned true most times, and returns how often it has.
func (s *Set[C]) End(most int, end func(C) bool) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if ended == most {
			break
		}
		if end(c) {
			ended++
		}
	}
	return ended
}

// Close makes Serve refuse further connections, and calls leave for each one there is.
func (s *Set[C]) Close(leave func(C)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.all {
		leave(c)
	}
}

// Wait waits until all connections are removed. If ctx is done first, it calls cut for each one that is
// left and returns ctx's error.
func (s *Set[C]) Wait(ctx context.Context, cut func(C)) error {
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		cut(c)
	}
	return ctx.Err()
}
