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
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/conns"
)

// A Handler answers requests. Its methods are called by the goroutines of connections.
type Handler interface {
	// ServeHTTP1 calls Conn.Answer or Conn.Relay for r. r is valid until then.
	ServeHTTP1(c *Conn, r *Request)

	// Malformed calls Conn.Answer for an invalid request. The connection ends after that.
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

	// Tunnels ends connections that have switched to another protocol, which Shutdown does not
	// wait for. If nil, they end when client or origin close them.
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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Tunnels == nil {
		o.Tunnels = context.Background()
	}
	return &Server{o: o}
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

// EndIdle ends up to most connections that wait for a request, only those whose last request was
// refused if refused is set, and returns how many.
func (s *Server) EndIdle(refused bool, most int) (ended int) {
	states := []uint32{spare, idle, unused}
	if refused {
		states = states[:1]
	}
	return s.conns.End(most, func(c *Conn) bool { return c.endIn(states...) })
}

// Leave makes every further answer close its connection.
func (s *Server) Leave() { s.leaving.Store(true) }

// LastMoment is how long a server that shuts down still waits for the first request of a
// connection, whose client has had no answer yet that asks to close it.
const LastMoment = time.Second

// Shutdown closes the connections that wait for a request, new ones after LastMoment, and waits
// until the others have answered theirs. If ctx is done first, it closes them all and returns ctx's
// error.
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
