// Package conns tracks the connections of a server, and ends them.
package conns

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"
)

// A Set holds the connections of a server. The zero value is ready to use, concurrently.
type Set[C comparable] struct {
	mu      sync.Mutex // guards the fields below
	all     map[C]struct{}
	closed  bool
	serving sync.WaitGroup
}

// Serve adds c and calls serve with the peer of conn in a new goroutine. When serve returns, Serve calls ended,
// unless it is nil, and removes c. After Close, Serve closes conn instead.
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
		serve(Peer(conn))
	}()
}

// Peer returns the remote address of conn, or that of a PROXY protocol header.
func Peer(conn net.Conn) netip.AddrPort {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return peer
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

// Remove removes c unless it was removed before.
func (s *Set[C]) Remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[c]; ok {
		delete(s.all, c)
		s.serving.Done()
	}
}

// End calls end for connections until it has returned true most times. It returns how often end has
// returned true.
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

// Close makes Serve refuse further connections, and calls leave for each connection.
func (s *Set[C]) Close(leave func(C)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.all {
		leave(c)
	}
}

// Wait waits until all connections are removed. If ctx is done first, it calls cut for each remaining
// connection and returns ctx's error.
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

// maxLinger is how many bytes Linger reads at most.
const maxLinger = 256 << 10

// Linger shuts down the node's side of conn and reads until the client closes its own, for at most
// timeout. Closing a connection with unread bytes would reset it, and the client could lose the last
// answer (RFC 9112, 9.6).
func Linger(conn net.Conn, timeout time.Duration) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	_, _ = io.CopyN(io.Discard, conn, maxLinger)
}

// LogPanic recovers from a panic and logs it with text. It must be deferred.
func LogPanic(logger *slog.Logger, text string) {
	if err := recover(); err != nil {
		logger.Error(text, "err", err, "stack", string(debug.Stack()))
	}
}
