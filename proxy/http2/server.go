// Package http2 is an HTTP/2 engine: it reads frames strictly as RFC 9113 defines them, and answers
// requests or relays them to origins in HTTP/1.1. It knows nothing about rules.
//
// One goroutine reads each connection and answers the requests that the node refuses. When it has
// processed all that it has read, it writes its answers together. A separate goroutine relays each request
// that passes, and a second one sends a body that arrives later.
//
// Requests are converted to the head that the origin gets, and parsed by package http1. So what
// HTTP/1.1 refuses is refused, and rules see the same as in HTTP/1.1.
package http2

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A Handler decides requests. Each connection calls its methods from its own goroutine. They must not block.
type Handler interface {
	// ServeHTTP2 calls s.Answer or s.Drop for r and returns nil, or returns a Passing that calls
	// s.Relay. r is valid until then.
	ServeHTTP2(s *Stream, r *http1.Request) Passing

	// MalformedStream is called for an invalid request, and for a client that does not speak HTTP/2. It returns fields for
	// the answer, as lines that end in CRLF, and whether to end the connection instead.
	MalformedStream(peer netip.AddrPort) (fields []byte, end bool)
}

// A Passing is a request that passes. Pass is called in its own goroutine.
type Passing interface{ Pass() }

// Options configures a Server. All are required.
type Options struct {
	// Limits.ReadHeaderTimeout also bounds the preface and each frame, and IdleTimeout a connection
	// without requests. MaxHeaderBytes is counted like SETTINGS_MAX_HEADER_LIST_SIZE.
	http1.Limits
	Handler Handler

	// MaxStreams is the maximum number of concurrent requests of a connection.
	MaxStreams int

	// MaxOverhead is how many frames a connection may send at once beyond what its requests need: see Overhead.
	MaxOverhead int

	// Logger logs panics.
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	*conns.Server[*Conn]
	o     Options
	clock http1.Clock
}

// NewServer returns a server. Shutdown tells clients twice that their connections end (RFC 9113, 6.8): first to
// open no more streams, then, within conns.FirstRequestWait, which streams the node has seen.
func NewServer(o Options) *Server {
	return &Server{o: o, Server: conns.NewServer(conns.Ends[*Conn]{
		Leave:  func(c *Conn) { go c.drain() }, // it may have to wait for the client
		Finish: func(c *Conn) { go c.finish() },
		Cut:    func(c *Conn) { _ = c.conn.Close() },
	})}
}

// ServeConn serves a connection in a new goroutine.
func (s *Server) ServeConn(conn net.Conn, start http1.Start) {
	c := newConn(s, conn, start.Secure)
	c.in, c.held = inputs.Get().(*input), start.Held
	c.w, c.since = copy(c.in[:], start.Read), start.Since
	s.Serve(c, conn, start.Ended, func(peer netip.AddrPort) {
		c.peer = peer
		c.serve()
	})
}
