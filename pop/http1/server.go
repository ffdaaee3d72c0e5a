// Package http1 is an HTTP/1.1 engine: it reads the requests of clients, strictly as RFC 9112
// says, and answers them or relays them to an origin as they came. It knows nothing of rules.
//
// Each connection is served by one goroutine, which waits for the client without a buffer. A
// second one runs only while a request's body is relayed that did not come with its head, or
// to notice that the client of a slow origin has gone away.
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
	// ServeHTTP1 answers r by Conn.Answer, or relays it by Conn.Relay. r is valid until then.
	ServeHTTP1(c *Conn, r *Request)

	// Malformed answers what could not be read as a request, by Conn.Answer. The connection
	// ends after that.
	Malformed(c *Conn, err *Error)
}

// Options configures a Server. Handler is required; times and sizes are as the caller says,
// without defaults.
type Options struct {
	Handler Handler

	ReadHeaderTimeout time.Duration // for a whole head, from its first byte
	IdleTimeout       time.Duration // for its first byte
	BodyTimeout       time.Duration // for the next bytes of a body, either way; 0 for no limit
	MaxHeaderBytes    int

	// BodyRate is how many bytes of a request's body a client has to send each second while the
	// origin has not begun its answer. It may fall behind by BodyTimeout, or a minute. If zero,
	// any rate will do.
	BodyRate int

	// Tunnels ends the connections that have switched to another protocol, for which Shutdown
	// does not wait. If nil, they end when client or origin do.
	Tunnels context.Context

	// Logger gets panics. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server serves the connections of one listener. Its methods may be called concurrently.
type Server struct {
	o       Options
	leaving atomic.Bool // answers ask clients to close
	ending  atomic.Bool // connections end as soon as they wait for a request
	clock   Clock

	mu      sync.Mutex // guards what follows
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

// A Start is what is known of a connection that the server gets.
type Start struct {
	Since  time.Time // the first head has ReadHeaderTimeout from then on
	Read   []byte    // was read already
	Secure bool      // the client connected by TLS
	Ended  func()    // is called when the connection has ended; may be nil
}

// ServeConn serves a connection, in a goroutine.
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

// peerOf returns the address of the client. That of a PROXY protocol header may be read here.
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

// EndIdle ends at most so many connections that wait for a request, only refused ones if refused is
// set, and returns how many.
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
// the others have answered theirs, or until ctx is done: then it closes them all, and returns
// ctx's error.
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

// A Clock makes the value of Date, once a second. Its zero value is ready; any goroutine may use it.
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
