// Package http1 is an HTTP/1.1 engine: it reads requests strictly as RFC 9112 defines them, and
// answers them or relays them unchanged to an origin. It knows nothing about rules.
//
// One goroutine serves each connection, and holds no buffer while it waits for the client. A
// second one runs only to relay a request's body that did not come with the head, or to notice
// that the client of a slow origin has disconnected.
package http1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A Handler answers requests. Its methods are called by the goroutines of connections.
type Handler interface {
	// ServeHTTP1 calls Conn.Answer or Conn.Relay for r. r is valid until then.
	ServeHTTP1(c *Conn, r *Request)

	// Malformed calls Conn.Answer for an invalid request. The connection ends after that.
	Malformed(c *Conn, err *Error)
}

// Options configures a Server. Handler is required; timeouts and sizes have no defaults.
type Options struct {
	Handler Handler

	ReadHeaderTimeout time.Duration // for a whole head, from its first byte
	IdleTimeout       time.Duration // for its first byte
	BodyTimeout       time.Duration // for the next bytes of a body, either way; 0 for no limit
	MaxHeaderBytes    int

	// BodyRate is the minimum rate of a request's body until the origin begins its answer, in
	// bytes per second. The client may fall behind by BodyTimeout, or a minute. If zero, there
	// is no minimum.
	BodyRate int

	// Tunnels ends connections that have switched to another protocol, which Shutdown does not
	// wait for. If nil, they end when client or origin close them.
	Tunnels context.Context

	// Logger logs panics. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server serves the connections of one listener. Its methods may be called concurrently.
type Server struct {
	o       Options
	leaving atomic.Bool // answers ask clients to close
	ending  atomic.Bool // connections end as soon as they wait for a request
	clock   Clock

	mu      sync.Mutex // guards the fields below
	ln      net.Listener
	conns   map[*Conn]struct{}
	closed  bool
	serving sync.WaitGroup
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Tunnels == nil {
		o.Tunnels = context.Background()
	}
	return &Server{o: o, conns: map[*Conn]struct{}{}}
}

// Serve serves the connections of ln until it is closed.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	s.ln = ln
	s.mu.Unlock()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		s.ServeConn(conn, Start{Since: time.Now()})
	}
}

// A Start describes a connection that is handed to the server.
type Start struct {
	Since  time.Time // start of ReadHeaderTimeout for the first head
	Read   []byte    // bytes that were already read
	Secure bool      // the client uses TLS
	Ended  func()    // called when the connection has ended; may be nil
}

// ServeConn serves a connection in a new goroutine.
func (s *Server) ServeConn(conn net.Conn, start Start) {
	c := &Conn{server: s, wire: newWire(conn), since: start.Since, secure: start.Secure}
	if len(start.Read) > 0 {
		c.in = newBuffer(max(len(start.Read), smallBuffer))
		c.w = copy(c.in, start.Read)
	}
	end := start.Ended
	if end == nil {
		end = func() {}
	}
	if !s.remember(c) {
		_ = conn.Close()
		end()
		return
	}
	go func() {
		defer s.forget(c)
		defer end()
		c.peer = peerOf(conn)
		c.serve()
	}()
}

// remember adds c to the connections that Shutdown waits for, unless the server is shut down.
func (s *Server) remember(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

// peerOf returns the address of the client. It may read a PROXY protocol header.
func peerOf(conn net.Conn) netip.AddrPort {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return peer
}

// forget removes c from the connections that Shutdown waits for.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; ok {
		delete(s.conns, c)
		s.serving.Done()
	}
}

// EndIdle ends up to most connections that wait for a request, only those whose last request was
// refused if refused is set, and returns how many.
func (s *Server) EndIdle(refused bool, most int) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if ended == most {
			break
		}
		if c.endIdle(refused) {
			ended++
		}
	}
	return ended
}

// Leave makes every further answer close its connection.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown closes the listener and the connections that wait for a request, and waits until
// the others have answered theirs. If ctx is done first, it closes them all and returns ctx's
// error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	s.ending.Store(true)
	s.mu.Lock()
	s.closed = true
	if s.ln != nil {
		_ = s.ln.Close()
	}
	for c := range s.conns {
		c.endIdle(false)
	}
	s.mu.Unlock()
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
	for c := range s.conns {
		_ = c.conn.Close()
		if oc := c.upstream.Load(); oc != nil {
			_ = oc.conn.Close()
		}
	}
	return ctx.Err()
}

// A Clock formats the value of Date, once a second. The zero value is ready to use, concurrently.
type Clock struct{ today atomic.Pointer[stamp] }

type stamp struct {
	second int64
	text   []byte
}

// Date returns the value at now.
func (c *Clock) Date(now time.Time) []byte {
	s := c.today.Load()
	if s == nil || s.second != now.Unix() {
		s = &stamp{now.Unix(), now.UTC().AppendFormat(nil, http.TimeFormat)}
		c.today.Store(s)
	}
	return s.text
}

var errClosed = errors.New("http1: the client has closed the connection")
