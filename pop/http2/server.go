// Package http2 is an HTTP/2 engine: it reads the frames of clients, strictly as RFC 9113 says, and
// answers requests or relays them to origins that speak HTTP/1.1. It knows nothing of rules.
//
// Each connection is read by one goroutine, which also answers the requests that the node refuses;
// what it answers is written at once when all that was read is used up. A request that passes is
// relayed by a goroutine of its own, and by a second one while its body is on its way.
//
// A request is rendered as the head that its origin gets, and read by the scanner of package http1:
// what that refuses is refused, and rules see what they see of HTTP/1.1.
package http2

import (
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

// A Handler decides about requests. Its methods are called by the goroutines of connections, and
// must not block.
type Handler interface {
	// ServeHTTP2 answers r by s.Answer or s.Drop and returns nil, or returns what relays it, by
	// s.Relay. r is valid until then.
	ServeHTTP2(s *Stream, r *http1.Request) Passing

	// MalformedHTTP2 is told of a request that could not be read, or of a client that does not speak
	// HTTP/2. It returns fields for the answer, as lines that end in CRLF, and whether to end the
	// connection instead.
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
	if o.MaxStreams == 0 {
		o.MaxStreams = 128
	}
	if o.MaxOverhead == 0 {
		o.MaxOverhead = 1000
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Server{o: o}
}

// ServeConn serves a connection, in a goroutine.
func (s *Server) ServeConn(conn net.Conn, start http1.Start) {
	c := newConn(s, conn, start.Secure)
	c.in = inputs.Get().(*input)
	c.w, c.since = copy(c.in[:], start.Read), start.Since
	s.conns.Serve(c, conn, start.Ended, func(peer netip.AddrPort) {
		c.peer = peer
		c.serve()
	})
}

// EndIdle ends up to most connections that wait for a request, only refused ones if refused is set,
// and returns their number.
func (s *Server) EndIdle(refused bool, most int) (ended int) {
	return s.conns.End(most, func(c *Conn) bool { return c.endWaiting(refused) })
}

// Leave makes every connection ask its client to go elsewhere, with its next answer.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown tells clients twice that their connections end (RFC 9113, 6.8): first that they should
// open no more streams, then, after http1.LastMoment at the latest, which ones were seen. New
// connections may begin a first request until then. It waits until all requests are answered, or
// until ctx is done: then it closes the connections, and returns ctx's error.
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
