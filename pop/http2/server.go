// Package http2 is an HTTP/2 engine: it reads frames strictly as RFC 9113 defines them, and answers
// requests or relays them to origins in HTTP/1.1. It knows nothing about rules.
//
// One goroutine reads each connection and answers the requests that the node refuses. When it has
// used all that it has read, it writes its answers together. A goroutine of its own relays each request
// that passes, and a second one sends a body that arrives later.
//
// Requests are converted to the head that the origin gets, and parsed by package http1. So what
// HTTP/1.1 refuses is refused, and rules see the same as in HTTP/1.1.
package http2

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/conns"
	"github.com/edgelimit/edge/pop/http1"
)

// A Handler decides requests. Each connection calls its methods from its own goroutine. They must not
// block.
type Handler interface {
	// ServeHTTP2 calls s.Answer or s.Drop for r and returns nil, or returns a Passing that calls
	// s.Relay. r is valid until then.
	ServeHTTP2(s *Stream, r *http1.Request) Passing

	// MalformedHTTP2 is called for an invalid request, and for a client that does not speak HTTP/2.
	// It returns fields for the answer, as lines that end in CRLF, and whether to end the connection
	// instead.
	MalformedHTTP2(peer netip.AddrPort) (fields []byte, end bool)
}

// A Passing is a request that passes. Pass is called in its own goroutine.
type Passing interface{ Pass() }

// Options configures a Server. Handler is required.
type Options struct {
	// Limits.ReadHeaderTimeout also bounds the preface and each frame, and IdleTimeout a connection
	// without requests. MaxHeaderBytes is counted like SETTINGS_MAX_HEADER_LIST_SIZE.
	http1.Limits
	Handler Handler

	// MaxStreams is the maximum number of concurrent requests of a connection. If zero, 128.
	MaxStreams int

	// MaxOverhead is how many frames a connection may send at once beyond what its requests need:
	// see overhead. If zero, 1000.
	MaxOverhead int

	// Logger logs panics. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	o       Options
	clock   http1.Clock
	leaving atomic.Bool
	conns   conns.Set[*Conn]
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	o.MaxStreams = cmp.Or(o.MaxStreams, 128)
	o.MaxOverhead = cmp.Or(o.MaxOverhead, 1000)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &Server{o: o}
}

// ServeConn serves a connection in a new goroutine.
func (s *Server) ServeConn(conn net.Conn, start http1.Start) {
	c := newConn(s, conn, start.Secure)
	c.in = inputs.Get().(*input)
	c.w, c.since = copy(c.in[:], start.Read), start.Since
	s.conns.Serve(c, conn, start.Ended, func(peer netip.AddrPort) {
		c.peer = peer
		c.serve()
	})
}

// EndIdle ends up to most connections that wait for a request, and returns how many it has ended. If
// refused is set, it ends only connections whose last request was refused.
func (s *Server) EndIdle(refused bool, most int) (ended int) {
	return s.conns.End(most, func(c *Conn) bool { return c.endWaiting(refused) })
}

// Leave makes every further answer ask the client to open no more streams.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown tells clients twice that their connections end (RFC 9113, 6.8): first to open no more
// streams, then, within http1.LastMoment, which streams the node has seen. New connections may begin a
// first request until then. Shutdown waits until all requests are answered. If ctx is done first, it
// closes the connections and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	s.conns.Close(func(c *Conn) { go c.drain() }) // it may have to wait for the client
	defer time.AfterFunc(http1.LastMoment, func() {
		s.conns.End(math.MaxInt, func(c *Conn) bool {
			go c.finish()
			return true
		})
	}).Stop()
	return s.conns.Wait(ctx, func(c *Conn) { _ = c.conn.Close() })
}
