// Connections to origins that speak HTTP/2.

//lint:file-ignore SA1019 net/http has no replacement that sends a ping on demand

package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// originWindow is how many bytes of an HTTP/2 origin's answer the node buffers for a slow client. Go's default is 4 MB.
const originWindow = 256 << 10

// silence is how long an HTTP/2 connection may be silent while a request waits for its answer, and how long the answer
// to a ping may take.
const silence = 2 * time.Second

// Protocols, as TLS names them.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

var (
	errSilent = errors.New("the origin answers neither requests nor pings")
	errNoMore = errors.New("the origin no longer speaks HTTP/2")
	errUnfit  = errors.New("the origin accepts no requests on a new HTTP/2 connection")
)

// NewHTTP2Origin is like NewOrigin for origins that speak HTTP/2, or HTTP/1.1 if they choose that in the TLS handshake.
// connect returns a connection for one of protocols, in the order of preference: a *tls.Conn if scheme is https.
func NewHTTP2Origin(scheme string, connect func(protocols ...string) (net.Conn, error), timeout time.Duration) *Origin {
	p := &pool{connect: connect, scheme: scheme}
	if scheme != "https" {
		p.speaks = protoHTTP2
	}
	t := &http.Transport{DisableCompression: true, IdleConnTimeout: idleTimeout}
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: originWindow}
	p.t, _ = http2.ConfigureTransports(t) // fails only if t was used before
	p.t.AllowHTTP, p.t.ConnPool = true, p
	o := NewOrigin(p.dial, timeout)
	o.http2 = p
	if scheme == "https" {
		o.http1 = NewOrigin(p.dialHTTP1, timeout)
	}
	return o
}

// A pool holds the HTTP/2 connections to an origin.
type pool struct {
	connect func(protocols ...string) (net.Conn, error)
	scheme  string
	t       *http2.Transport

	mu     sync.Mutex // guards the fields below
	conns  []*http2Conn
	speaks string // the protocol of the newest connection; "" if there was none

	// attempt is done when an attempt to connect has ended, with its error, if any, as the cause. It is nil unless one is
	// in progress and the origin speaks HTTP/2: then requests wait for it.
	attempt context.Context
}

// An http2Conn is an HTTP/2 connection to an origin.
type http2Conn struct {
	net.Conn
	cc     *http2.ClientConn
	heard  atomic.Int64 // when bytes last arrived, in Unix nanoseconds
	probed atomic.Bool
	dead   atomic.Bool // a ping got no answer
}

func (c *http2Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// probe closes c unless its peer answers a ping. c gets no more requests, so it is never pinged again: gRPC servers
// close connections with several pings during a silence, and with them streams that are silent for good reason.
func (c *http2Conn) probe() {
	if c.probed.Swap(true) {
		return
	}
	c.cc.SetDoNotReuse()
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	if c.cc.Ping(ctx) != nil {
		c.dead.Store(true)
		_ = c.cc.Close()
	}
}

// dial returns a bridge, or a connection to an origin that speaks HTTP/1.1.
func (p *pool) dial() (net.Conn, error) {
	c, conn, err := p.get((*http2.ClientConn).CanTakeNewRequest)
	if c == nil {
		return conn, err
	}
	return newBridge(p), nil
}

// dialHTTP1 returns a connection for requests that HTTP/2 cannot represent, unless the origin speaks only HTTP/2.
func (p *pool) dialHTTP1() (net.Conn, error) {
	conn, err := p.connect(protoHTTP1)
	refused, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && refused.Op == "remote error":
		return p.dial()
	case err != nil || protocolOf(conn) == protoHTTP1 || p.last() == protoHTTP1:
		return conn, err
	}
	_ = conn.Close() // Go's HTTP/2-only servers accept such a connection, but do not answer requests
	return p.dial()
}

// last returns the protocol of the newest connection.
func (p *pool) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.speaks
}

// protocolOf returns the protocol that was chosen in the TLS handshake, or "".
func protocolOf(conn net.Conn) string {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.ConnectionState().NegotiatedProtocol
	}
	return protoHTTP2
}

// get returns an HTTP/2 connection that take accepts. If it finds no such connection, it dials: the new connection may
// speak HTTP/1.1 instead. Requests to an origin that speaks HTTP/2 wait for the same new connection.
func (p *pool) get(take func(*http2.ClientConn) bool) (*http2Conn, net.Conn, error) {
	for {
		p.mu.Lock()
		for _, c := range p.conns {
			if take(c.cc) {
				p.mu.Unlock()
				return c, nil, nil
			}
		}
		running := p.attempt
		if running == nil {
			break
		}
		p.mu.Unlock()
		<-running.Done()
		if err := context.Cause(running); err != context.Canceled {
			return nil, nil, err
		}
	}
	attempt, end := context.WithCancelCause(context.Background())
	if p.speaks == protoHTTP2 {
		p.attempt = attempt
	}
	p.mu.Unlock()
	conn, err := p.connect(protoHTTP2, protoHTTP1)
	c := &http2Conn{Conn: conn}
	if err == nil && protocolOf(conn) == protoHTTP2 {
		c.cc, err = p.t.NewClientConn(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end(err)
	if p.attempt == attempt {
		p.attempt = nil
	}
	switch {
	case err != nil:
		return nil, nil, err
	case c.cc == nil:
		p.speaks = protoHTTP1
		return nil, conn, nil
	}
	p.speaks = protoHTTP2
	p.conns = append(p.conns, c)
	if !take(c.cc) {
		return nil, nil, errUnfit
	}
	return c, nil, nil
}

// GetClientConn returns a connection for r. The transport calls it.
func (p *pool) GetClientConn(r *http.Request, _ string) (*http2.ClientConn, error) {
	c, conn, err := p.get((*http2.ClientConn).ReserveNewRequest)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		_ = conn.Close()
		return nil, errNoMore
	}
	w := r.Context().Value(waitKey{}).(*wait)
	w.since.Store(time.Now().UnixNano())
	w.conn.Store(c)
	return c.cc, nil
}

// MarkDead removes a connection that has ended. The transport calls it.
func (p *pool) MarkDead(cc *http2.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c *http2Conn) bool { return c.cc == cc })
}

// close closes the idle connections. Those in use are closed when they become idle.
func (p *pool) close() {
	p.mu.Lock()
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.cc.SetDoNotReuse()
		if c.cc.State().StreamsActive == 0 {
			_ = c.cc.Close()
		}
	}
}

// waitKey is the key of a request's *wait in its context.
type waitKey struct{}

// A wait is a request that waits for the head of its answer.
type wait struct {
	conn  atomic.Pointer[http2Conn]
	since atomic.Int64 // when the request was given to conn, in Unix nanoseconds
	timer *time.Timer  // runs check
	ended atomic.Bool
}

// check probes a connection that has been silent.
func (w *wait) check() {
	left := silence
	c := w.conn.Load()
	if c != nil {
		left -= time.Since(time.Unix(0, max(w.since.Load(), c.heard.Load())))
	}
	switch {
	case w.ended.Load():
	case left > 0:
		w.timer.Reset(left)
	default:
		c.probe()
	}
}

// RoundTrip sends r. If the connection is lost before the answer, it returns a lostError.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Del("Upgrade") // HTTP/2 has no upgrades, and a server may ignore the field
	r.Header.Del("Connection")
	w := new(wait)
	w.timer = time.AfterFunc(time.Hour, w.check)
	w.timer.Reset(silence) // only now, because check uses w.timer
	resp, err := p.t.RoundTrip(r.WithContext(context.WithValue(r.Context(), waitKey{}, w)))
	w.ended.Store(true)
	w.timer.Stop()
	c := w.conn.Load()
	switch {
	case err == nil || c == nil || !c.cc.State().Closed:
		return resp, err
	case c.dead.Load():
		err = errSilent
	}
	return nil, lostError{err}
}
