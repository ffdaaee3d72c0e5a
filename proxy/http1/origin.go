package http1

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// idleTimeout is how long a connection to an origin may be idle before it is closed.
	idleTimeout = 90 * time.Second

	// After a peak, idle connections beyond maxIdle are closed once they have been idle for surplusTimeout, the
	// longest idle first. Until then, further requests of the peak can reuse them.
	maxIdle        = 1024
	surplusTimeout = time.Second
)

// An Origin is a server that requests are relayed to, with its idle connections. Its methods may
// be called concurrently.
type Origin struct {
	dial    func() (net.Conn, error)
	timeout time.Duration
	http2   *pool   // nil if all connections speak HTTP/1.1
	http1   *Origin // for requests that HTTP/2 cannot represent; nil if this Origin can send them

	mu     sync.Mutex // guards the fields below
	idle   []*originConn
	closed bool
	reap   *time.Timer // runs closeOld; nil if there are no idle connections
}

// NewOrigin returns an origin that dial connects to. timeout is how long the origin may take to begin its answer.
func NewOrigin(dial func() (net.Conn, error), timeout time.Duration) *Origin {
	return &Origin{dial: dial, timeout: timeout}
}

// An originConn is a connection to an origin.
type originConn struct {
	wire
	reused bool      // it has answered before
	since  time.Time // when it became idle

	// Used by loops, see loop.take:
	loop   *loop            // that watches it; nil if none does
	fd     int32            // the socket, if loop is set
	polls  func(fd uintptr) // reads if that is possible without waiting, and sets polled
	polled bool             // the last call of polls has read, or returned an error in err
}

// get returns the connection that became idle most recently, or a new one.
func (o *Origin) get(fresh bool, now time.Time) (*originConn, error) {
	if !fresh {
		if c := o.take(nil, now); c != nil {
			c.unwatch()
			return c, nil
		}
	}
	conn, err := o.dial()
	if err != nil {
		return nil, err
	}
	c := new(originConn)
	c.wire.init(NewSocket(conn), o.timeout)
	return c, nil
}

// isIdempotent reports whether the request with this head may be sent again even if the origin may have seen it
// (RFC 9110, 9.2.2).
func isIdempotent(head []byte) bool {
	method, _, _ := bytes.Cut(head, []byte(" "))
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE":
		return true
	}
	return false
}

// take returns an idle connection, or nil: see pop. It closes connections that the origin has closed, that were idle
// too long, or on which a faulty origin has sent more than one answer: the rest would be read as the answer to the next
// request.
func (o *Origin) take(l *loop, now time.Time) *originConn {
	for {
		c := o.pop(l)
		if c == nil || now.Sub(c.since) < idleTimeout && c.open() {
			return c
		}
		c.close()
	}
}

// pop removes an idle connection from the pool, or returns nil. Among those used last, it prefers one that l watches.
// Unless l is nil, pop returns only sockets, because a loop cannot watch other connections.
func (o *Origin) pop(l *loop) *originConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.idle) - 1
	if last < 0 {
		return nil
	}
	at := last
	for at > 0 && last-at < 8 && o.idle[at].loop != l {
		at--
	}
	if o.idle[at].loop != l {
		at = last
	}
	c := o.idle[at]
	if l != nil && c.raw == nil {
		return nil
	}
	o.idle = slices.Delete(o.idle, at, at+1)
	return c
}

// put returns a connection to the pool after its answer has been read.
func (o *Origin) put(c *originConn, now time.Time) {
	c.release()
	c.reused, c.since = true, now
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		c.close()
		return
	}
	o.idle = append(o.idle, c)
	switch {
	case o.reap == nil:
		o.reap = time.AfterFunc(idleTimeout, o.closeOld)
	case len(o.idle) == maxIdle+1:
		o.reap.Reset(surplusTimeout)
	}
	o.mu.Unlock()
}

// closeOld closes the connections that have been idle for too long.
func (o *Origin) closeOld() {
	o.mu.Lock()
	var old []*originConn
	for i, now := 0, time.Now(); ; i++ {
		if i == len(o.idle) {
			old, o.idle, o.reap = o.idle, nil, nil
			break
		}
		timeout := idleTimeout
		if len(o.idle)-i > maxIdle {
			timeout = surplusTimeout
		}
		if left := timeout - now.Sub(o.idle[i].since); left > 0 {
			old, o.idle = slices.Clone(o.idle[:i]), slices.Delete(o.idle, 0, i)
			o.reap.Reset(left)
			break
		}
	}
	o.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// Close closes the idle connections. Those in use are closed when they become idle.
func (o *Origin) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.reap != nil {
		o.reap.Stop()
	}
	for _, c := range o.idle {
		c.close()
	}
	o.idle = nil
	if o.http2 != nil {
		o.http2.close()
	}
	if o.http1 != nil {
		o.http1.Close()
	}
}

// tooEarly returns err, or io.ErrUnexpectedEOF if it is io.EOF.
func tooEarly(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
