// Package conns tracks connections and other work that a node finishes or ends before it stops. It also bounds the
// memory of connections whose requests are incomplete.
package conns

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Set holds connections, or other work, in progress. The zero value is ready to use. It is safe for concurrent use.
type Set[C comparable] struct {
	mu     sync.Mutex // guards the fields below
	all    map[C]struct{}
	closed bool
	empty  chan struct{} // closed when all becomes empty; nil unless Empty was called
}

// Add adds c and returns true. After Close, it only returns false.
func (s *Set[C]) Add(c C) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.all == nil {
		s.all = map[C]struct{}{}
	}
	s.all[c] = struct{}{}
	return true
}

// Remove removes c unless it was removed before.
func (s *Set[C]) Remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if len(s.all) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// Len returns how many elements s holds.
func (s *Set[C]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// each calls f for each element, and returns the number of elements. f must not block.
func (s *Set[C]) each(f func(C)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		f(c)
	}
	return len(s.all)
}

// Close makes Add refuse further elements, and calls leave for each element of s.
func (s *Set[C]) Close(leave func(C)) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.each(leave)
}

// Empty returns a channel that is closed when s is empty.
func (s *Set[C]) Empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	empty := s.empty
	if empty == nil {
		empty = make(chan struct{})
		s.empty = empty
	}
	if len(s.all) == 0 {
		close(empty)
		s.empty = nil
	}
	return empty
}

// Wait waits until s is empty. If ctx is done first, it calls cut for each remaining element and returns ctx's error.
func (s *Set[C]) Wait(ctx context.Context, cut func(C)) error {
	select {
	case <-s.Empty():
	case <-ctx.Done():
	}
	if s.each(cut) == 0 {
		return nil
	}
	return ctx.Err()
}

// A Conn is a connection of a Server. Its methods are called from any goroutine; they must not block.
type Conn interface {
	comparable

	// Leave ends the connection when it waits for another request or, if first is set, even for its first one.
	Leave(first bool)

	// Cut closes the connection.
	Cut()
}

// A Server serves connections and ends them. The zero value is ready to use. It is safe for concurrent use.
type Server[C Conn] struct {
	Leaving atomic.Bool // AskToLeave or Shutdown was called
	Ending  atomic.Bool // Shutdown was called

	conns Set[C]
}

// RequestWait is how long a server that shuts down waits for a request from a client that it has not asked to close the
// connection: for the first one of a new connection, or the next one after an answer that was under way.
const RequestWait = time.Second

// Begin adds c, whose connection is conn. The caller must call done when c has ended; done calls ended unless that is
// nil. After Shutdown, Begin closes conn instead, and done is nil.
func (s *Server[C]) Begin(c C, conn io.Closer, ended func()) (done func()) {
	if ended == nil {
		ended = func() {}
	}
	if !s.conns.Add(c) {
		_ = conn.Close()
		ended()
		return nil
	}
	return func() {
		ended()
		s.conns.Remove(c)
	}
}

// Forget removes c, so that Shutdown does not wait for it.
func (s *Server[C]) Forget(c C) { s.conns.Remove(c) }

// Cut shuts down both directions of conn, so that the goroutine that serves conn gets an error and closes it. If conn
// does not use a socket, Cut closes it.
func Cut(conn io.Closer) error {
	if socket, ok := Underlying(conn).(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			return raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		}
	}
	return conn.Close()
}

// Past is a deadline that has passed. It ends a running read or write.
var Past = time.Unix(1, 0)

// Underlying returns the connection below TLS, or conn itself without TLS.
func Underlying(conn io.Closer) io.Closer {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return conn
}

// AskToLeave makes every later answer ask its client to close the connection, or to open no more streams.
func (s *Server[C]) AskToLeave() { s.Leaving.Store(true) }

// Shutdown ends connections that wait for another request at once, and those without a first request after RequestWait.
// A client whose answer was under way may send one more request within RequestWait. Shutdown waits until the remaining
// connections have answered their requests. If ctx is done first, it closes them and returns ctx's error.
func (s *Server[C]) Shutdown(ctx context.Context) error {
	s.AskToLeave()
	s.Ending.Store(true)
	s.conns.Close(func(c C) { c.Leave(false) })
	defer time.AfterFunc(RequestWait, func() { s.conns.each(func(c C) { c.Leave(true) }) }).Stop()
	return s.conns.Wait(ctx, C.Cut)
}

// Peer returns the remote address of conn, which may come from a PROXY protocol header.
func Peer(conn interface{ RemoteAddr() net.Addr }) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return AddrOf(tcp.AddrPort())
	}
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return AddrOf(peer)
}

// AddrOf returns the address of a in the form that rules use.
func AddrOf(a netip.AddrPort) netip.Addr { return a.Addr().Unmap().WithZone("") }

// A wrappingListener is a listener whose Accept returns what wrap makes of the connection.
type wrappingListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (w wrappingListener) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.wrap(conn), nil
}

// maxLinger is the maximum number of bytes that Linger reads. A proxy with Go's limit of 1 MB for headers cannot send a
// larger question, even with the target three times. If its question failed, it would let the request pass.
const maxLinger = 4 << 20

// LingerSize is the memory that Linger uses, in bytes.
const LingerSize = 8 << 10

// Linger shuts down the node's side of conn, and reads until the client closes its own side, for at most timeout.
// Closing a connection with unread bytes would reset it, and the client could lose the last answer (RFC 9112, 9.6).
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
