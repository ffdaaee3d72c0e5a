// Package http1 is an HTTP/1.1 engine: it reads requests strictly as RFC 9112 defines them, and answers them or relays
// them unchanged to an origin. It knows nothing about rules.
//
// One goroutine serves each connection. If there are many connections, those whose requests have no bodies, and are
// refused or get short answers soon, share one goroutine per core (see loop). A connection holds no buffer while it
// waits for the client. A second goroutine runs only to relay a body that did not arrive with the head, or to notice
// that the client of a slow origin has disconnected.
//
// Comments on code that only saves CPU time name cases of bench/http that measure the gain: (refuse, 1,000
// connections). BenchmarkEngine in package proxy measures it, too.
package http1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// A Handler answers requests of all versions of HTTP. Its methods may be called concurrently. They must not block,
// except in methods of Asker: many connections may share a goroutine, and many streams a connection.
type Handler interface {
	// Serve calls a.Answer or a.Drop, and returns a nil origin. Otherwise, the engine sends r to o, and o's answer
	// to the client, and then calls relay.Relayed. r is valid until one of these calls returns.
	Serve(a Asker, r *Request) (o *Origin, relay Relay)

	// Malformed returns the answer to an invalid request, with fields as lines that end in CRLF. err is nil if the request
	// violates HTTP/2 or HTTP/3 rather than HTTP/1.1. If status is 0, the client gets no answer. In HTTP/1.1, the
	// connection then ends. In HTTP/2 and HTTP/3, it ends at once if end is set.
	Malformed(peer netip.Addr, err *Error) (fields []byte, status int, body string, end bool)
}

// An Asker is the HTTP/1.1 connection, or the stream of HTTP/2 or HTTP/3, that a request comes from.
type Asker interface {
	// RemoteAddr returns the address of the peer, which may come from a PROXY protocol header.
	RemoteAddr() netip.Addr

	// Secure reports whether the client uses TLS.
	Secure() bool

	// Proto returns the version of the request, such as HTTP/1.1.
	Proto() string

	// Answer answers the request. fields are lines that end in CRLF. Answer adds Date and the framing. It does not wait
	// for the rest of the request's body.
	Answer(status int, fields []byte, body string)

	// Refuse marks the request as refused. If last is set, the engine closes the connection after the answer, or asks the
	// client to open no more streams. Otherwise, it waits for the next request for at most ReadHeaderTimeout.
	Refuse(last bool)

	// Drop ends the connection or the stream without an answer.
	Drop()

	// Sent returns the status of the last answer and the number of bytes of its body.
	Sent() (status int, bytes int64)
}

// Limits bound how long a client can make the node wait, and what it can make the node store. They have no defaults.
type Limits struct {
	ReadHeaderTimeout time.Duration // for a whole head, from its first byte
	IdleTimeout       time.Duration // for the first byte of the next request
	BodyTimeout       time.Duration // for the next bytes of a body, in either direction; 0 for no limit
	MaxHeaderBytes    int

	// BodyRate is the minimum rate of a request's body until the origin begins its answer, in bytes per second. The client
	// may fall behind by BodyTimeout, or by a minute if that is 0. If zero, there is no minimum.
	BodyRate int

	// MaxStreams is the maximum number of concurrent requests of a connection of HTTP/2 or HTTP/3, and MaxOverhead how
	// many frames it may send at once beyond what its requests need.
	MaxStreams, MaxOverhead int
}

// Idle returns how long a client may wait before its next request. refused says that the last one was refused.
func (l *Limits) Idle(refused bool) time.Duration {
	if refused {
		return min(l.IdleTimeout, l.ReadHeaderTimeout)
	}
	return l.IdleTimeout
}

// Options configures a Server of any version of HTTP. All are required.
type Options struct {
	Limits
	Handler Handler

	// Tunnels gets the connections that have switched to another protocol, for which Shutdown does not wait. Once it is
	// closed, the server closes such connections. Only HTTP/1.1 has them.
	Tunnels *conns.Set[*Conn]

	// Logger logs panics.
	Logger *slog.Logger
}

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	conns.Server[*Conn]
	o     Options
	clock Clock
	open  atomic.Int32 // number of connections
	many  int32        // number of connections at which s begins to use loops
	loops loops
}

// NewServer returns a server.
func NewServer(o Options) *Server { return &Server{o: o, many: many} }

// Shutdown shuts down the server: see [conns.Server.Shutdown].
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.loops.close()
	return s.Server.Shutdown(ctx)
}

// A Start describes a connection for Accept.
type Start struct {
	Since  time.Time     // start of ReadHeaderTimeout for the first head
	Read   []byte        // bytes that were already read, such as by ReadNew; Accept may keep them
	Secure bool          // the client uses TLS
	Held   *conns.Holder // counts the memory of incomplete heads; may be nil
	Ended  func()        // called when the connection has ended; may be nil
}

// Accept adds a connection, and returns a function that serves it until it ends or joins a loop.
func (s *Server) Accept(conn net.Conn, start Start) (serve func()) {
	c := &Conn{server: s, since: start.Since, peer: conns.Peer(conn), secure: start.Secure, held: start.Held}
	c.light = enoughLight - 1 // of many new connections, stacks would take most of the memory
	c.wire.init(conn, s.o.BodyTimeout)
	c.serves = c.serveReady
	if len(start.Read) > 0 {
		c.in, c.w = start.Read[:cap(start.Read)], len(start.Read)
	} else {
		c.state.Store(unused)
	}
	if c.done = s.Begin(c, conn, start.Ended); c.done == nil {
		return func() {}
	}
	s.open.Add(1)
	return func() { s.run(c, nil) }
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

// AppendOwn appends the fields of one of the node's own answers: Date, fields, and Content-Length unless answers with
// this status have no body.
func (c *Clock) AppendOwn(dst []byte, now time.Time, status int, fields []byte, length int) []byte {
	dst = append(append(dst, "Date: "...), c.Date(now)...)
	dst = append(append(dst, "\r\n"...), fields...)
	if !IsBodiless(status) {
		dst = append(strconv.AppendInt(append(dst, "Content-Length: "...), int64(length), 10), "\r\n"...)
	}
	return dst
}

// IsBodiless reports whether answers with this status have no body.
func IsBodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

var errClosed = errors.New("http1: the client has closed the connection")
