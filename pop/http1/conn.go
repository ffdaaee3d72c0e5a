package http1

import (
	"errors"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a client's connection. A Handler may call its methods until it returns.
type Conn struct {
	wire
	server *Server
	x      *exchange // current request; nil between requests
	peer   netip.AddrPort
	since  time.Time // when the first head began; zero after it
	now    time.Time // last read from the client; zero during and after a relay
	secure bool      // uses TLS

	closing bool // close after the current answer
	dropped bool // close without an answer
	state   atomic.Uint32

	refused bool // the last request was refused

	upstream atomic.Pointer[originConn] // of the current relay

	sentStatus int   // of the last answer
	sentBytes  int64 // of its body
}

// States of a connection.
const (
	active uint32 = iota
	idle          // waits for a request
	spare         // waits for a request after a refused one
	ended         // closes as soon as it is idle
)

// An exchange holds the state of one request and its answer. An idle connection has none.
type exchange struct {
	req    Request
	answer Answer
	body   bodyReader // of the request
	began  time.Time  // when the first bytes of the request came
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// RemoteAddr returns the address of the client, or that of a PROXY protocol header.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.peer }

// Secure reports whether the client uses TLS.
func (c *Conn) Secure() bool { return c.secure }

// Drop closes the connection without an answer.
func (c *Conn) Drop() { c.closing, c.dropped = true, true }

// Refuse marks the request as refused. If last is set, the connection is closed after the answer;
// else it may wait for the next request for ReadHeaderTimeout, and EndIdle closes it first.
func (c *Conn) Refuse(last bool) {
	c.refused = true
	c.closing = c.closing || last
}

// Gone closes the connection of a client that has disconnected. status is for the access log.
func (c *Conn) Gone(status int) {
	c.Drop()
	c.sentStatus = status
}

// Sent returns the status of the last answer and the number of bytes of its body.
func (c *Conn) Sent() (status int, bytes int64) { return c.sentStatus, c.sentBytes }

// serve answers the requests of c until it ends.
func (c *Conn) serve() {
	defer c.end()
	defer func() {
		if err := recover(); err != nil {
			c.server.o.Logger.Error("panic while serving a request", "err", err, "stack", string(debug.Stack()))
		}
	}()
	for {
		if !c.begin() {
			return
		}
		x := c.x
		if err := c.readHead(x); err != nil {
			c.fail(err)
			return
		}
		x.body = newBodyReader(x.req.Body, x.req.Length)
		c.closing = x.req.Close
		c.sentStatus, c.sentBytes = 0, 0
		c.server.o.Handler.ServeHTTP1(c, &x.req)
		if !c.finish() {
			return
		}
	}
}

// begin waits for the first bytes of a request.
func (c *Conn) begin() bool {
	if c.r == c.w {
		if err := c.flushWithin(); err != nil {
			return false
		}
		if c.since.IsZero() {
			c.setReadDeadline(c.clock(), c.patience())
		} else {
			c.setReadDeadline(c.since, c.server.o.ReadHeaderTimeout) // a new connection must send a request
		}
		if c.x != nil {
			exchanges.Put(c.x)
			c.x = nil
		}
		waits := idle
		if c.refused {
			waits = spare
		}
		if c.state.Store(waits); c.server.ending.Load() {
			return false
		}
		c.release()
		err := c.more(smallBuffer)
		if c.state.Swap(active) == ended || err != nil {
			return false
		}
		c.now = time.Now()
	}
	if len(c.out) > 2*copied && c.flushWithin() != nil {
		return false
	}
	if c.x == nil {
		c.x = exchanges.Get().(*exchange)
	}
	c.x.req.reset()
	if c.x.began = c.since; c.since.IsZero() {
		c.x.began = c.clock()
	}
	c.since = time.Time{}
	c.refused = false
	return true
}

// endIdle ends c if it waits for a request; with refused set, only if the last one was refused. It
// may be called from any goroutine.
func (c *Conn) endIdle(refused bool) bool {
	if !c.state.CompareAndSwap(spare, ended) && (refused || !c.state.CompareAndSwap(idle, ended)) {
		return false
	}
	_ = c.conn.SetReadDeadline(long)
	return true
}

// patience returns how long the client may be idle before its next request.
func (c *Conn) patience() time.Duration {
	if c.refused {
		return min(c.server.o.IdleTimeout, c.server.o.ReadHeaderTimeout)
	}
	return c.server.o.IdleTimeout
}

// readHead reads a request's head.
func (c *Conn) readHead(x *exchange) error {
	for {
		done, err := x.req.scan(c.buffered(), c.server.o.MaxHeaderBytes)
		if done || err != nil {
			return err
		}
		if err := c.flushWithin(); err != nil {
			return err
		}
		c.setReadDeadline(x.began, c.server.o.ReadHeaderTimeout)
		if err := c.fill(smallBuffer); err != nil {
			return err
		}
		c.now = time.Now()
	}
}

// clock returns the time of the last read from the client, if the connection has not waited since,
// else the current time. Reading the clock for each deadline and Date would slow refusals
// measurably.
func (c *Conn) clock() time.Time {
	if c.now.IsZero() {
		return time.Now()
	}
	return c.now
}

// fail answers an invalid request.
func (c *Conn) fail(err error) {
	var malformed *Error
	switch {
	case errors.As(err, &malformed):
	case IsTimeout(err):
		malformed = &Error{http.StatusRequestTimeout, "timeout reading the request header"}
	default:
		return // the client is gone
	}
	c.closing, c.now = true, time.Time{}
	if c.server.o.Handler.Malformed(c, malformed); !c.dropped {
		c.linger()
	}
}

// used marks the request's head as used.
func (c *Conn) used() { c.use(len(c.x.req.raw) + c.x.req.start) }

// Answer answers r, or a malformed request if r is nil. fields are lines that end in CRLF; Answer
// adds Date and the framing. Answers to pipelined requests are written together.
func (c *Conn) Answer(r *Request, status int, fields []byte, body string) {
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified
	if r == nil {
		c.closing = true
		r = &Request{}
	}
	if !c.closing && !c.discard() {
		c.closing = true // the rest of the body would be read as a request
	}
	out := appendStatus(c.room(), status)
	out = append(out, "Date: "...)
	out = append(append(out, c.server.clock.Date(c.clock())...), "\r\n"...)
	out = append(out, fields...)
	if !bodiless {
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, int64(len(body)), 10), "\r\n"...)
	}
	out = append(c.appendConnection(out, r, true), "\r\n"...)
	c.sentStatus = status
	if !bodiless && !r.Head {
		out = append(out, body...)
		c.sentBytes = int64(len(body))
	}
	c.out = out
}

// appendConnection appends a Connection field if the client needs one. framed is false if only
// closing the connection ends the answer.
func (c *Conn) appendConnection(dst []byte, r *Request, framed bool) []byte {
	if !framed || c.server.leaving.Load() {
		c.closing = true
	}
	switch {
	case c.closing:
		return append(dst, "Connection: close\r\n"...)
	case r.Minor == 0:
		return append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}

func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	return append(append(dst, http.StatusText(status)...), "\r\n"...)
}

// flushWithin is flush with the write timeout.
func (c *Conn) flushWithin() error {
	if len(c.out) == 0 {
		return nil
	}
	c.writeTimeout()
	return c.flush()
}

// writeTimeout bounds the next write.
func (c *Conn) writeTimeout() {
	if c.server.o.BodyTimeout > 0 {
		c.setWriteDeadline(c.clock(), c.server.o.BodyTimeout)
	}
}

// finish ends an exchange, and reports whether another one may follow.
func (c *Conn) finish() bool {
	whole := c.discard()
	if !c.closing && whole {
		return true
	}
	if c.dropped || whole && c.r == c.w {
		_ = c.flushWithin()
	} else {
		c.linger()
	}
	return false
}

// discard skips the request and its body as far as they have been read, and reports whether that is
// all. The node does not wait for the rest before it answers.
func (c *Conn) discard() bool {
	x := c.x
	if x.req.raw != nil {
		c.used()
		x.req.raw = nil
	}
	for !x.body.ended {
		_, n, err := x.body.next(c.buffered())
		c.use(n)
		if err != nil || n == 0 {
			return false
		}
	}
	return true
}

// Bounds for a lingering close: closing a connection with unread bytes would reset it, and the
// client could lose the answer (RFC 9112, 9.6).
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 256 << 10
)

// linger flushes, shuts down the node's side of the connection and reads until the client closes
// its own.
func (c *Conn) linger() {
	if c.flushWithin() != nil {
		return
	}
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	c.r, c.w = 0, 0
	for n := 0; n < lingerBytes; {
		if c.fill(smallBuffer) != nil {
			return
		}
		n += c.w - c.r
		c.r, c.w = 0, 0
	}
}

// end closes c and releases its buffers.
func (c *Conn) end() {
	_ = c.conn.Close()
	if c.x != nil {
		exchanges.Put(c.x)
		c.x = nil
	}
	c.r, c.w, c.out = 0, 0, c.out[:0]
	c.release()
}
