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
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

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

// A Passing is a request that passes. Pass is called in a goroutine of its own.
type Passing interface{ Pass() }

// Options configures a Server. Handler is required; times and sizes are as the caller says,
// without defaults but for those that are told.
type Options struct {
	Handler Handler

	ReadHeaderTimeout time.Duration // for the preface, and for a frame or a header, from its first byte
	IdleTimeout       time.Duration // for a connection without requests
	BodyTimeout       time.Duration // for the next bytes of a body, either way; 0 for no limit
	BodyRate          int           // see http1.Options
	MaxHeaderBytes    int           // as SETTINGS_MAX_HEADER_LIST_SIZE counts them

	// MaxStreams is how many requests of a connection may be under way. If zero, 128.
	MaxStreams int

	// MaxOverhead is how many frames beyond what its requests need a connection may send at once:
	// see overhead. If zero, 1000.
	MaxOverhead int

	// Logger gets panics. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	o       Options
	clock   http1.Clock
	leaving atomic.Bool

	mu      sync.Mutex // guards what follows
	conns   map[*Conn]struct{}
	closed  bool
	serving sync.WaitGroup
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
	return &Server{o: o, conns: map[*Conn]struct{}{}}
}

// ServeConn serves a connection, in a goroutine.
func (s *Server) ServeConn(conn net.Conn, start http1.Start) {
	c := newConn(s, conn, start.Secure)
	c.in = inputs.Get().(*input)
	c.w, c.since = copy(c.in[:], start.Read), start.Since
	end := start.Ended
	if end == nil {
		end = func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		end()
		return
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	go func() {
		defer s.forget(c)
		defer end()
		c.peer, _ = netip.ParseAddrPort(conn.RemoteAddr().String()) // a PROXY protocol header may tell it
		c.serve()
	}()
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.serving.Done()
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
		if c.endWaiting(refused) {
			ended++
		}
	}
	return ended
}

// Leave makes every connection ask its client to go elsewhere, with its next answer.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown tells clients twice that their connections end (RFC 9113, 6.8): first that they should
// open no more streams, then which ones were seen. It waits until those are answered, or until ctx is
// done: then it closes the connections, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		go c.drain() // it may have to wait for the client
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
	}
	return ctx.Err()
}
