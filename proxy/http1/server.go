// Package http1 is an HTTP/1.1 engine: it reads requests strictly as RFC 9112 defines them, and
// answers them or relays them unchanged to an origin. It knows nothing about rules.
//
// One goroutine serves each connection. If there are many connections, those of refused clients share one goroutine per
// core (see loop). A connection holds no buffer while it waits for the client. A second goroutine runs only to relay a
// body that did not arrive with the head, or to notice that the client of a slow origin has disconnected.
package http1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// A Handler answers requests. Its methods may be called concurrently. They must not block, except in methods of Conn:
// many connections may share a goroutine.
type Handler interface {
	// ServeHTTP1 calls Conn.Answer or Conn.Relay for r. r is valid until then.
	ServeHTTP1(c *Conn, r *Request)

	// Malformed calls Conn.Answer or Conn.Drop for an invalid request. Then the connection ends.
	Malformed(c *Conn, err *Error)
}

// Limits bound what a client can make the node wait for or store. They have no defaults.
type Limits struct {
	ReadHeaderTimeout time.Duration // for a whole head, from its first byte
	IdleTimeout       time.Duration // for the first byte of the next request
	BodyTimeout       time.Duration // for the next bytes of a body, in either direction; 0 for no limit
	MaxHeaderBytes    int

	// BodyRate is the minimum rate of a request's body until the origin begins its answer, in bytes per second. The client
	// may fall behind by BodyTimeout, or by a minute if that is 0. If zero, there is no minimum.
	BodyRate int
}

// Options configures a Server. All are required.
type Options struct {
	Limits
	Handler Handler

	// When Tunnels is done, connections that have switched to another protocol are closed. Shutdown
	// does not wait for them.
	Tunnels context.Context

	// Logger logs panics.
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	*conns.Server[*Conn]
	o     Options
	clock Clock
	open  atomic.Int32 // number of connections
	loops loops
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	return &Server{o: o, Server: conns.NewServer(conns.Ends[*Conn]{
		Leave:  func(c *Conn) { c.endIn(idle) },
		Finish: func(c *Conn) { c.endIn(unused) },
		Cut:    func(c *Conn) { _ = conns.Cut(c.conn) },
	})}
}

// Shutdown shuts down the server: see [conns.Server.Shutdown].
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.loops.close()
	return s.Server.Shutdown(ctx)
}

// A Start describes a connection for ServeConn.
type Start struct {
	Since  time.Time     // start of ReadHeaderTimeout for the first head
	Read   []byte        // bytes that were already read
	Secure bool          // the client uses TLS
	Held   *conns.Holder // counts the memory of incomplete heads; may be nil
	Ended  func()        // called when the connection has ended; may be nil
}

// ServeConn serves a connection in a new goroutine.
func (s *Server) ServeConn(conn net.Conn, start Start) {
	c := &Conn{server: s, since: start.Since, secure: start.Secure, held: start.Held}
	c.wire.init(conn, s.o.BodyTimeout)
	c.serves = c.serveReady
	if len(start.Read) > 0 {
		c.in = newBuffer(max(len(start.Read), smallBuffer))
		c.w = copy(c.in, start.Read)
	} else {
		c.state.Store(unused)
	}
	if c.done = s.Begin(c, conn, start.Ended); c.done == nil {
		return
	}
	s.open.Add(1)
	go func() {
		c.peer = conns.Peer(conn)
		s.run(c, nil)
	}()
}

// A Clock formats the value of Date, once a second. The zero value is ready to use. Its methods may be
// called concurrently.
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
