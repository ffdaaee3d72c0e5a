package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A netServer is an engine that consists of the server and the reverse proxy of net/http. It watches what the
// server reads and writes, to notice invalid requests that it answers itself: these count, and mitigated clients
// get the same refusal as for other requests.
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

// ServeConn serves a connection in a new goroutine, with a server of its own.
func (s *netServer) ServeConn(nc net.Conn, start http1.Start) {
	c := &conn{Conn: nc, s: s, sniffed: start.Read, headBy: start.Since.Add(s.o.ReadHeaderTimeout), closed: make(chan struct{})}
	if s.isHTTP2 {
		c.frames = &watch{conn: c}
	}
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
	s       *netServer
	server  *http.Server // of this connection
	peer    netip.Addr
	sniffed []byte    // read by the Front, but not by the server yet
	headBy  time.Time // deadline of the first request's header
	frames  *watch    // of HTTP/2; nil for HTTP/1

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
	if w := c.frames; w != nil {
		if w.handled.Add(1)-w.done.Load() >= maxHandlers {
			w.full.Store(true)
		}
		defer w.done.Add(1)
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
	if c.frames != nil {
		c.frames.read(p[:n])
	}
	return n, err
}

// SetReadDeadline sets the deadline of reads. That of the first header is at most headBy.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.frames == nil && !c.began.Load() && t.After(c.headBy) {
		t = c.headBy
	}
	return c.Conn.SetReadDeadline(t)
}

// Write writes the server's answer. If the Proxy has not received the request, it is malformed: Write counts it,
// and writes a refusal instead for a mitigated client.
func (c *conn) Write(p []byte) (int, error) {
	if c.frames != nil {
		c.frames.wrote(p)
		return c.Conn.Write(p)
	}
	if c.handled.Load() || !isError(p) {
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

// A watch follows the frames of an HTTP/2 connection.
type watch struct {
	conn *conn

	handled, done atomic.Int64 // requests that the Proxy has begun and ended
	full          atomic.Bool  // requests may have been queued

	in, out  frames
	preface  int       // bytes of the preface that were read
	block    bool      // a header block has begun and not ended
	newest   uint32    // stream
	headerBy time.Time // deadline of the header that has begun; zero between headers

	mu     sync.Mutex // guards the fields below
	opened int64      // streams whose header block was read
	answer int64      // of these, the ones that the server has answered itself
	armed  bool       // settle will be called
}

// read processes bytes from the client. It enforces the deadline of a header; net/http would allow
// the idle timeout.
func (w *watch) read(p []byte) {
	skip := min(len(p), len(preface)-w.preface)
	w.preface += skip
	w.in.feed(p[skip:], w.readFrame)
	switch within := w.block || w.in.within(); {
	case within && w.headerBy.IsZero():
		w.headerBy = time.Now().Add(w.conn.s.o.ReadHeaderTimeout)
		_ = w.conn.Conn.SetReadDeadline(w.headerBy)
	case !within && !w.headerBy.IsZero():
		w.headerBy = time.Time{}
		_ = w.conn.Conn.SetReadDeadline(w.headerBy)
	}
}

func (w *watch) readFrame(f *frames) {
	if f.kind() != http2.FrameHeaders && f.kind() != http2.FrameContinuation {
		return
	}
	if f.kind() == http2.FrameHeaders && f.stream() > w.newest {
		w.newest = f.stream()
		w.open()
	}
	w.block = !http2.Flags(f.head[4]).Has(http2.FlagHeadersEndHeaders)
}

// open processes the start of a request.
func (w *watch) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	w.arm()
}

// handlerPatience is how long a request may take from the server to the Proxy, even on an overloaded node.
const handlerPatience = 5 * time.Second

// arm makes settle check the streams that are open now, after handlerPatience. mu is held.
func (w *watch) arm() {
	if !w.armed {
		w.armed = true
		opened := w.opened
		time.AfterFunc(handlerPatience, func() { w.settle(opened) })
	}
}

// maxHandlers is how many requests of a connection net/http handles at once. Further ones wait, and
// never reach the Proxy if the client cancels them, so a connection with that many is no longer
// watched.
const maxHandlers = 250

// settle counts as malformed the streams that were opened long ago and never reached the Proxy: the server
// has reset them or answered 400 or 431.
func (w *watch) settle(opened int64) {
	w.mu.Lock()
	w.armed = false
	handled := w.handled.Load()
	bad := opened - handled - w.answer
	if w.full.Load() || bad < 0 {
		bad = 0
	}
	w.answer += bad
	if w.opened > opened {
		w.arm()
	}
	w.mu.Unlock()
	for range bad {
		w.malformed()
	}
}

// malformed counts a malformed request, and ends the connection of a mitigated client.
func (w *watch) malformed() {
	p := w.conn.s.p
	if x := p.malformed(w.conn.peer, p.o.Now()); x.decision.Verdict != limit.Malformed {
		_ = w.conn.Conn.Close()
	}
}

// wrote processes bytes from the server. The server sends GOAWAY with an error to a client that does not
// speak HTTP/2.
func (w *watch) wrote(p []byte) {
	w.out.feed(p, func(f *frames) {
		if f.kind() == http2.FrameGoAway && f.at == len(f.head) && f.head[16] != 0 && !w.waits() {
			go w.malformed() // it may close the connection that the server is writing to
		}
	})
}

// waits reports whether settle will count something.
func (w *watch) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened > w.handled.Load()+w.answer
}

// frames finds the frames in a stream of bytes.
type frames struct {
	head [17]byte // a frame's header and first bytes
	at   int      // bytes of the frame that have passed; 0 between frames
}

const frameHeader = 9 // bytes

func (f *frames) size() int {
	return frameHeader + (int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]))
}
func (f *frames) kind() http2.FrameType { return http2.FrameType(f.head[3]) }
func (f *frames) stream() uint32 {
	return binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1)
}

// feed processes the next bytes, and calls begun for each frame when its head is complete.
func (f *frames) feed(p []byte, begun func(*frames)) {
	for len(p) > 0 {
		to := frameHeader
		if f.at >= frameHeader {
			to = f.size()
		}
		if f.at < len(f.head) {
			to = min(to, len(f.head))
			copy(f.head[f.at:to], p)
		}
		n := min(to-f.at, len(p))
		f.at += n
		p = p[n:]
		if f.at < frameHeader {
			return
		}
		if f.at == min(f.size(), len(f.head)) {
			begun(f)
		}
		if f.at == f.size() {
			f.at = 0
		}
	}
}

// within reports whether a frame other than DATA has begun and not ended.
func (f *frames) within() bool {
	return f.at > 0 && (f.at < 4 || f.kind() != http2.FrameData)
}
