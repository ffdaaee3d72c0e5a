package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/conns"
	"github.com/edgelimit/edge/pop/http1"
)

// A netServer is an engine that consists of the server and the reverse proxy of net/http. It watches what the
// server writes in HTTP/1, to notice invalid requests that it answers itself: these count, and mitigated clients
// get the same refusal as for other requests. In HTTP/2, such requests do not count.
type netServer struct {
	*conns.Server[*conn]
	p       *Proxy
	o       *FrontOptions
	isHTTP2 bool
}

func newNetServer(p *Proxy, o *FrontOptions, isHTTP2 bool) *netServer {
	return &netServer{p: p, o: o, isHTTP2: isHTTP2, Server: conns.NewServer(conns.Ends[*conn]{
		Idle:   func(*conn, bool) bool { return false },
		Leave:  (*conn).leave,
		Finish: (*conn).finish,
		Cut:    func(c *conn) { _ = c.Conn.Close() }, // not the server, which may not serve c yet
	})}
}

// ServeConn serves a connection in a new goroutine, by a server of its own.
func (s *netServer) ServeConn(nc net.Conn, start http1.Start) {
	c := &conn{Conn: nc, s: s, sniffed: start.Read, headBy: start.Since.Add(s.o.ReadHeaderTimeout), closed: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!s.isHTTP2)
	protocols.SetUnencryptedHTTP2(s.isHTTP2)
	c.server = &http.Server{
		Handler:           c,
		Protocols:         protocols,
		ReadHeaderTimeout: s.o.ReadHeaderTimeout,
		IdleTimeout:       s.o.IdleTimeout,
		MaxHeaderBytes:    s.o.MaxHeaderBytes,
		// Otherwise net/http would answer OPTIONS *, even to mitigated clients.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  s.o.IdleTimeout,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: s.o.BodyTimeout,
		},
		ConnState:   c.state,
		BaseContext: func(net.Listener) context.Context { return s.o.Tunnels },
		ErrorLog:    slog.NewLogLogger(s.p.o.Logger.Handler(), slog.LevelDebug),
	}
	s.Serve(c, nc, start.Ended, func(peer netip.AddrPort) {
		c.peer = addrOf(peer)
		_ = c.server.Serve(&once{c, nc.LocalAddr()})
		<-c.closed
	})
}

// A once is a listener with one connection.
type once struct {
	c    net.Conn
	addr net.Addr
}

func (o *once) Accept() (c net.Conn, err error) {
	if c, o.c = o.c, nil; c == nil {
		err = io.EOF
	}
	return c, err
}

func (o *once) Addr() net.Addr { return o.addr }
func (o *once) Close() error   { return nil }

// A conn is a client's connection that a netServer serves.
type conn struct {
	net.Conn
	s        *netServer
	server   *http.Server // of this connection
	peer     netip.Addr
	sniffed  []byte    // read by the Front, but not by the server yet
	headBy   time.Time // deadline of the first request's header
	headers  headers   // of HTTP/2
	headerBy time.Time // deadline of the HTTP/2 header that has begun; zero between headers

	began   atomic.Bool // the first request was handled
	handled atomic.Bool // the current request was handled
	linger  atomic.Bool // the client may still send when the connection is closed

	closing sync.Once
	closed  chan struct{}
}

// state notices the end of a request, and a switch to another protocol.
func (c *conn) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateIdle:
		c.handled.Store(false)
	case http.StateHijacked:
		c.s.Forget(c)
	}
}

// ServeHTTP passes a request to the Proxy.
func (c *conn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		r.TLS = &state
	}
	c.handled.Store(true)
	if c.began.Store(true); c.s.IsEnding() {
		c.leave()
	}
	c.s.p.note()
	c.s.p.serveNet(w, r, c)
}

// leave ends c when it waits for another request. A server of net/http that shuts down does not
// answer the first request of a connection.
func (c *conn) leave() {
	if c.began.Load() {
		noWait, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.server.Shutdown(noWait)
	}
}

// finish closes c if it has had no request.
func (c *conn) finish() {
	if !c.began.Load() {
		_ = c.Conn.Close()
	}
}

func (c *conn) Read(p []byte) (n int, err error) {
	if len(c.sniffed) > 0 {
		n = copy(p, c.sniffed)
		c.sniffed = c.sniffed[n:]
	} else {
		n, err = c.Conn.Read(p)
	}
	if c.s.isHTTP2 {
		c.limitHeader(p[:n])
	}
	return n, err
}

// SetReadDeadline sets the deadline of reads. That of the first header is at most headBy.
func (c *conn) SetReadDeadline(t time.Time) error {
	if !c.s.isHTTP2 && !c.began.Load() && t.After(c.headBy) {
		t = c.headBy
	}
	return c.Conn.SetReadDeadline(t)
}

// Write writes the server's answer. If the Proxy has not got the request, it is malformed: Write counts it,
// and writes a refusal instead for a mitigated client.
func (c *conn) Write(p []byte) (int, error) {
	if c.s.isHTTP2 || c.handled.Load() || !isError(p) {
		return c.Conn.Write(p)
	}
	c.linger.Store(true)
	if answer := c.s.p.malformedAnswer(c.peer, p); len(answer) > 0 {
		if _, err := c.Conn.Write(answer); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// isError reports whether p begins an HTTP/1 answer with status 4xx or 5xx.
func isError(p []byte) bool {
	return bytes.HasPrefix(p, []byte("HTTP/1.")) && len(p) > len("HTTP/1.1 4") && (p[9] == '4' || p[9] == '5')
}

// CloseWrite shuts down the node's side.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// lingerTime is how long a client that may still send has to read the last answer.
const lingerTime = 500 * time.Millisecond

// Close closes the connection.
func (c *conn) Close() error {
	if c.linger.Swap(false) {
		conns.Linger(c.Conn, lingerTime)
	}
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// limitHeader sets the deadline of an HTTP/2 header when it begins with the bytes of p, which the client has sent, and
// clears it at the end. net/http would allow the idle timeout.
func (c *conn) limitHeader(p []byte) {
	switch within := c.headers.feed(p); {
	case within && c.headerBy.IsZero():
		c.headerBy = time.Now().Add(c.s.o.ReadHeaderTimeout)
	case !within && !c.headerBy.IsZero():
		c.headerBy = time.Time{}
	default:
		return
	}
	_ = c.Conn.SetReadDeadline(c.headerBy)
}

// Sizes, kinds and flags of frames.
const (
	frameHeader       = 9 // bytes
	frameData         = 0
	frameHeaders      = 1
	frameContinuation = 9
	endHeaders        = 4
)

// headers finds the header blocks in what an HTTP/2 client sends.
type headers struct {
	preface int               // bytes of the preface that have passed
	frame   [frameHeader]byte // header of the current frame
	at      int               // bytes of the frame that have passed; 0 between frames
	block   bool              // a header block has begun and not ended
}

// feed processes the next bytes. It reports whether a header block, or a frame other than DATA, has begun and not
// ended.
func (h *headers) feed(p []byte) (within bool) {
	skip := min(len(p), len(preface)-h.preface)
	h.preface += skip
	for p = p[skip:]; len(p) > 0; {
		if h.at < frameHeader {
			n := copy(h.frame[h.at:], p)
			h.at += n
			p = p[n:]
		}
		if h.at < frameHeader {
			break
		}
		size := frameHeader + (int(h.frame[0])<<16 | int(h.frame[1])<<8 | int(h.frame[2]))
		n := min(size-h.at, len(p))
		h.at += n
		p = p[n:]
		if kind := h.frame[3]; kind == frameHeaders || kind == frameContinuation {
			h.block = h.frame[4]&endHeaders == 0
		}
		if h.at == size {
			h.at = 0
		}
	}
	return h.block || h.at > 0 && (h.at < 4 || h.frame[3] != frameData)
}
