package http1

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/edgelimit/edge/proxy/conns"
)

// A Conn is a client's connection. It serves requests one after the other, as the Asker of each and the Client of its
// Call.
type Conn struct {
	wire
	server *Server
	x      *turn     // current request; nil between requests
	since  time.Time // start of ReadHeaderTimeout for the first head; zero after that
	state  atomic.Uint32

	secure  bool // uses TLS
	closing bool // close after the current answer
	dropped bool // close without an answer
	refused bool // the last request was refused

	loop    *loop       // nil if c has its own goroutine
	fd      int32       // the socket, if loop is set
	light   int         // number of exchanges in a row that a loop could have served
	awaited *originConn // whose answer c waits for in a loop; nil if it waits for the client
	peer    netip.Addr

	serves func(fd uintptr) bool // serveReady as a value, made once per connection to save allocations

	sentStatus int   // status of the last answer
	sentBytes  int64 // of its body

	done func() // called when c has ended
	held *conns.Holder
}

// States of a connection.
const (
	active uint32 = iota
	unused        // waits for its first request
	idle          // waits for another request
	ended         // closes when it becomes idle, or was cut off
)

// A turn holds the state of one request and its answer. An idle connection has none.
type turn struct {
	began     time.Time // when the first bytes of the request came
	malformed error     // of the head
	scanned   bool      // the head was read
	answered  bool
	chunks    bool       // the answer is sent in chunks
	body      bodyReader // of the request
	req       Request
	call      Call
}

var turns = sync.Pool{New: func() any { return new(turn) }}

// memory returns the size of x with its heads.
func (x *turn) memory() int {
	return int(unsafe.Sizeof(*x)) + (cap(x.req.fields)+cap(x.call.a.fields))*int(unsafe.Sizeof(Field{}))
}

// keptTurn is the maximum size of a turn that another request reuses, in bytes.
const keptTurn = 16 << 10

// endTurn ends the current turn, if any.
func (c *Conn) endTurn() {
	if c.x != nil && c.x.memory() <= keptTurn {
		turns.Put(c.x)
	}
	c.x = nil
}

func (c *Conn) RemoteAddr() netip.Addr          { return c.peer }
func (c *Conn) Secure() bool                    { return c.secure }
func (c *Conn) Sent() (status int, bytes int64) { return c.sentStatus, c.sentBytes }

func (c *Conn) Proto() string {
	if c.x.req.Minor == 0 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Drop closes the connection without an answer.
func (c *Conn) Drop() { c.closing, c.dropped = true, true }

func (c *Conn) Refuse(last bool) {
	c.refused = true
	c.light++
	c.closing = c.closing || last
}

// abort ends the connection with a reset: an orderly end would make a cut answer seem whole.
func (c *Conn) abort() {
	if s, ok := conns.Underlying(c.conn).(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(0)
	}
	c.Drop()
}

// run serves c until it ends or joins a loop. If l is set, run leads l first, and then serves the connection that left.
func (s *Server) run(c *Conn, l *loop) {
	defer func() {
		if c != nil {
			c.leave()
			c.end()
		}
	}()
	defer conns.LogPanic(s.o.Logger, "panic while serving a request")
	begun := c != nil && c.awaited != nil
	if l != nil {
		begun = l.lead(&c)
	}
	if c != nil && c.err == nil && c.serve(begun) {
		c = nil
	}
}

// serve answers the requests of c until it ends or joins a loop, and reports whether it joined one. begun says whether
// a request has begun already.
func (c *Conn) serve(begun bool) (joined bool) {
	for {
		if !begun {
			if begun, joined = c.begin(); !begun {
				return joined
			}
		}
		begun = false
		switch err := c.readHead(c.x); {
		case err != nil:
			c.fail(err)
			return false
		case c.awaited != nil:
			c.resume()
		case !c.x.answered:
			c.handle(c.x)
		}
		if !c.finish() {
			return false
		}
	}
}

// handle calls the handler for a request whose head was read.
func (c *Conn) handle(x *turn) {
	x.body = x.req.reader()
	if !x.body.ended {
		c.light = 0
	}
	c.closing = x.req.Close
	c.sentStatus, c.sentBytes = 0, 0
	if o, relay := c.server.o.Handler.Serve(c, &x.req); o != nil {
		c.relay(o, relay)
	}
	x.answered = c.awaited == nil
}

// begin waits for the first bytes of a request that needs further reads, and serves all others itself. If begun is
// false, the connection has ended or joined a loop.
func (c *Conn) begin() (begun, joined bool) {
	for c.r == c.w {
		if c.flush() != nil || !c.rest() {
			return false, false
		}
		if c.raw == nil {
			err := c.fill(smallBuffer)
			if !c.wakeUp() || err != nil {
				return false, false
			}
			break
		}
		if c.shouldJoin() {
			if c.join() {
				return false, true
			}
			c.light, c.readBy = 0, time.Time{} // join may have removed the deadline, and must not be tried again at once
			continue
		}
		if err := c.await(c.serves, smallBuffer); err != nil || c.x != nil {
			return err == nil, false
		}
	}
	return c.next(), false
}

// serveReady reads from the socket fd, or continues a suspended exchange, and serves the requests that have arrived. It
// reports whether serve must take over: the head or the body of a request is incomplete, the client of a suspended
// exchange has ended its side, the connection ends, or it should join a loop.
//
// A request costs one read and one write. serveReady waits for the next request in the same poller call in which it has
// emptied the socket, so it misses no event. If it returned for each request, it would have to try another read before
// it waits (refuse).
func (c *Conn) serveReady(fd uintptr) bool {
	for {
		switch {
		case c.awaited == nil:
			if !c.readReady(fd) {
				return c.shouldJoin()
			}
			if !c.wakeUp() {
				c.err = errClosed
			}
		case !c.edge:
			return true
		case !c.resume():
			return false
		case c.closing:
			return c.endNow()
		default:
			c.discard()
		}
		for c.err == nil && c.r < c.w {
			if !c.next() {
				c.err = errClosed
				break
			}
			x := c.x
			x.scanned, x.malformed = x.req.scan(c.buffered(), c.server.o.MaxHeaderBytes)
			if !x.scanned || x.malformed != nil || x.req.Body != NoBody || x.req.Upgrade {
				return true
			}
			c.handle(x)
			switch {
			case c.awaited != nil:
				return false
			case c.closing:
				return c.endNow()
			}
			c.discard()
		}
		if c.err == nil {
			c.err = c.flush()
		}
		if c.err == nil && !c.rest() {
			c.err = errClosed
		}
		if c.err != nil {
			return true
		}
		if c.empty {
			return c.shouldJoin()
		}
		c.leave() // a client that keeps sending must not delay the other connections of the loop
		c.reports = c.reports || reportEmpty(fd)
	}
}

// shouldJoin reports whether c should wait for its next request in a loop.
func (c *Conn) shouldJoin() bool {
	s := c.server
	return c.loop == nil && c.raw != nil && c.light >= enoughLight && s.open.Load() >= s.many
}

// endNow ends c after an answer if the client need not be given time to read it. It returns true.
func (c *Conn) endNow() bool {
	if c.discard() && c.r == c.w {
		c.err = cmp.Or(c.flush(), errClosed)
	}
	return true
}

// enoughLight is how many exchanges in a row a loop could have served before c joins one: leaving costs more than a
// loop saves.
const enoughLight = 4

// rest prepares the connection to wait for a request. It returns false if the connection must end instead.
func (c *Conn) rest() bool {
	timeout, waits := c.server.o.Idle(c.refused), idle
	if c.server.Ending.Load() { // and the last answer did not ask the client to close
		timeout, waits = min(timeout, conns.RequestWait), active
	}
	switch {
	case c.loop != nil:
		c.readBy = c.clock().Add(timeout) // checked by loop.sweep
	case c.since.IsZero():
		c.setReadDeadline(c.clock(), timeout)
	default:
		c.setReadDeadline(c.since, c.server.o.ReadHeaderTimeout) // a new connection must send a request
	}
	c.endTurn()
	if !c.since.IsZero() {
		waits = unused
	}
	switch {
	case c.state.Swap(waits) == ended:
		return false
	case waits == idle && c.server.Ending.Load(): // Shutdown began meanwhile
		return c.wakeUp() && c.rest()
	}
	c.release()
	return true
}

// wakeUp undoes rest when data has arrived. It returns false if the connection was ended meanwhile.
func (c *Conn) wakeUp() bool {
	c.now = time.Now()
	return c.state.Swap(active) != ended
}

// next prepares for the request that begins in the buffer.
func (c *Conn) next() bool {
	if len(c.out) > 2*copied && c.flush() != nil {
		return false
	}
	if c.x == nil {
		c.x = turns.Get().(*turn)
	}
	x := c.x
	x.req.reset()
	x.scanned, x.answered, x.malformed = false, false, nil
	x.began = c.since
	if c.since.IsZero() {
		x.began = c.clock()
	}
	c.since = time.Time{}
	c.refused = false
	return true
}

// Leave ends c if it waits for another request or, if first is set, for its first one.
func (c *Conn) Leave(first bool) {
	state := idle
	if first {
		state = unused
	}
	c.endIn(state)
}

// Cut closes c.
func (c *Conn) Cut() { _ = conns.Cut(c.conn) }

// endIn ends c if c is in state. It may be called from any goroutine.
func (c *Conn) endIn(state uint32) {
	switch {
	case !c.state.CompareAndSwap(state, ended):
	case c.raw != nil:
		// The goroutine or loop that waits for the socket then reads the end of the stream, and closes c.
		_ = c.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
	default:
		_ = c.conn.SetReadDeadline(conns.Past)
	}
}

// readHead reads a request's head. While it waits for more, c.held counts the connection's memory.
func (c *Conn) readHead(x *turn) error {
	if x.scanned || x.malformed != nil {
		return x.malformed
	}
	for {
		done, err := x.req.scan(c.buffered(), c.server.o.MaxHeaderBytes)
		if done || err != nil {
			c.held.Hold(0)
			return err
		}
		if err := c.flush(); err != nil {
			return err
		}
		c.grow(smallBuffer)
		c.held.Hold(len(c.in) + cap(c.out) + x.memory())
		c.setReadDeadline(x.began, c.server.o.ReadHeaderTimeout)
		if err := c.fill(smallBuffer); err != nil {
			return err
		}
		c.now = time.Now()
	}
}

// clock returns the time of the last read from the client or of the end of the last relay, or the current time if the
// connection has waited since. Reading the system's clock for each deadline and Date would slow refusals measurably.
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
	c.x.req.reset() // the answer must not depend on it
	fields, status, body, _ := c.server.o.Handler.Malformed(c.peer, malformed)
	if status == 0 {
		c.Drop()
		return
	}
	c.Answer(status, fields, body)
	c.linger()
}

// useHead marks the bytes of the request's head as used, once.
func (c *Conn) useHead() {
	if r := &c.x.req; r.raw != nil {
		c.use(len(r.raw) + r.start)
		r.raw = nil
	}
}

// Answer also writes answers to pipelined requests together.
func (c *Conn) Answer(status int, fields []byte, body string) {
	if !c.closing && !c.discard() {
		c.closing = true // the rest of the body would be read as the next request
	}
	out := c.server.clock.AppendOwn(appendStatus(c.room(), status), c.clock(), status, fields, len(body))
	out = append(c.appendConnection(out, true), "\r\n"...)
	if c.x.req.Head || IsBodiless(status) {
		body = ""
	}
	c.out = append(out, body...)
	c.sentStatus, c.sentBytes = status, int64(len(body))
}

// appendConnection appends a Connection field if the client needs one. framed is false if only the end of the
// connection ends the answer.
func (c *Conn) appendConnection(dst []byte, framed bool) []byte {
	if !framed || c.server.Leaving.Load() {
		c.closing = true
	}
	switch {
	case c.closing:
		return append(dst, "Connection: close\r\n"...)
	case c.x.req.keep: // HTTP/1.0 clients that ask for it need the field, and some HTTP/1.1 clients expect it
		return append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}

// finish ends a turn, and reports whether another one may follow.
func (c *Conn) finish() bool {
	whole := c.discard()
	if !c.closing && whole {
		return true
	}
	if c.dropped || whole && c.r == c.w {
		_ = c.flush()
	} else {
		c.linger()
	}
	return false
}

// discard skips the request and its body as far as they have arrived, and reports whether that is all. The node does
// not wait for the rest before it answers.
func (c *Conn) discard() bool {
	c.useHead()
	x := c.x
	for !x.body.ended {
		_, n, err := x.body.next(c.buffered())
		c.use(n)
		if err != nil || n == 0 {
			return false
		}
	}
	return true
}

// lingerTime is how long a client has to read the last answer.
const lingerTime = 2 * time.Second

// linger flushes, and waits for at most lingerTime until the client closes its side of the connection.
func (c *Conn) linger() {
	if c.flush() == nil {
		c.r, c.w = 0, 0
		c.release()
		c.held.Hold(conns.LingerSize)
		conns.Linger(c.conn, lingerTime)
	}
}

// end closes c and releases its buffers.
func (c *Conn) end() {
	c.endTurn()
	c.close()
	c.server.open.Add(-1)
	c.done()
}
