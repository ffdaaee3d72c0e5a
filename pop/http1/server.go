// Package http1 is an HTTP/1.1 engine: it reads requests strictly as RFC 9112 defines them, and
// answers them or relays them unchanged to an origin. It knows nothing about rules.
//
// One goroutine serves each connection. It holds no buffer while it waits for the client. A second
// goroutine runs only to relay a body that did not arrive with the head, or to notice that the client
// of a slow origin has disconnected.
package http1

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/conns"
)

// A Handler answers requests. Each connection calls its methods from its own goroutine.
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
	BodyTimeout       time.Duration // for the next bytes of a body, either way; 0 for no limit
	MaxHeaderBytes    int

	// BodyRate is the minimum rate of a request's body until the origin begins its answer, in
	// bytes per second. The client may fall behind by BodyTimeout, or a minute. If zero, there
	// is no minimum.
	BodyRate int
}

// Options configures a Server. Handler is required.
type Options struct {
	Limits
	Handler Handler

	// Tunnels ends, when it is done, connections that have switched to another protocol. Shutdown
	// does not wait for them. If nil, they end when the client or the origin closes them.
	Tunnels context.Context

	// Logger logs panics. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	o       Options
	leaving atomic.Bool // answers ask clients to close
	ending  atomic.Bool // connections end as soon as they wait for a request
	clock   Clock
	conns   conns.Set[*Conn]
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Tunnels == nil {
		o.Tunnels = context.Background()
	}
	return &Server{o: o}
}

// A Start describes a connection for ServeConn.
type Start struct {
	Since  time.Time // start of ReadHeaderTimeout for the first head
	Read   []byte    // bytes that were already read
	Secure bool      // the client uses TLS
	Ended  func()    // called when the connection has ended; may be nil
}

// ServeConn serves a connection in a new goroutine.
func (s *Server) ServeConn(conn net.Conn, start Start) {
	c := &Conn{server: s, wire: newWire(conn, s.o.BodyTimeout), since: start.Since, secure: start.Secure}
	if len(start.Read) > 0 {
		c.in = newBuffer(max(len(start.Read), smallBuffer))
		c.w = copy(c.in, start.Read)
	} else {
		c.state.Store(unused)
	}
	s.conns.Serve(c, conn, start.Ended, func(peer netip.AddrPort) {
		c.peer = peer
		c.serve()
	})
}

// EndIdle ends up to most connections that wait for a request, and returns how many it has ended. If
// refused is set, it ends only connections whose last request was refused.
func (s *Server) EndIdle(refused bool, most int) (ended int) {
	states := []uint32{spare, idle, unused}
	if refused {
		states = states[:1]
	}
	return s.conns.End(most, func(c *Conn) bool { return c.endIn(states...) })
}

// Leave makes every further answer close its connection.
func (s *Server) Leave() { s.leaving.Store(true) }

// LastMoment is how long a server that shuts down waits for the first request of a new connection: its
// client has not been asked to close it yet.
const LastMoment = time.Second

// Shutdown closes idle connections at once, and those without a first request after LastMoment. It
// waits until the others have answered their requests. If ctx is done first, it closes all connections
// and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	s.ending.Store(true)
	s.conns.Close(func(c *Conn) { c.endIn(spare, idle) })
	defer time.AfterFunc(LastMoment, func() {
		s.conns.End(math.MaxInt, func(c *Conn) bool { return c.endIn(unused) })
	}).Stop()
	return s.conns.Wait(ctx, func(c *Conn) {
		_ = c.conn.Close()
		if oc := c.upstream.Load(); oc != nil {
			_ = oc.conn.Close()
		}
	})
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
