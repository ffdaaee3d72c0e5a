package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/conns"
	"github.com/edgelimit/edge/pop/limit"
)

// A conn is a client's connection that the Front watches.
type conn struct {
	net.Conn
	front   *Front
	peer    netip.Addr
	tls     *tls.ConnectionState // nil without TLS
	sniffed []byte               // read by the Front, but not by the server yet
	headBy  time.Time            // deadline of the first request's header
	frames  *watch               // of HTTP/2; nil for HTTP/1
	ended   func()               // called when the connection is closed; nil if it was refused

	began   atomic.Bool // the Proxy has got a request, or c was closed
	handled atomic.Bool // the Proxy has got the current request
	linger  atomic.Bool // the client may still send when the connection is closed

	begun chan struct{} // closed when began is set
}

type connKey struct{}

// ConnContext lets the Proxy find the connection of a request. An http.Server of a Front must use it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnState notices the end of a request. An http.Server of a Front must use it.
func ConnState(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
		c.handled.Store(false)
	}
}

// connOf returns the connection of r, or nil if no Front has accepted it.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// begin must be called when the Proxy gets r, and end when it has answered r.
func (c *conn) begin(r *http.Request) (end func()) {
	if r.TLS == nil {
		r.TLS = c.tls
	}
	c.setBegan()
	c.handled.Store(true)
	if c.frames == nil {
		return func() {}
	}
	if c.frames.handled.Add(1)-c.frames.done.Load() >= maxHandlers {
		c.frames.full.Store(true)
	}
	return func() { c.frames.done.Add(1) }
}

func (c *conn) setBegan() {
	if !c.began.Swap(true) {
		close(c.begun)
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

// Write writes the server's answer. If the Proxy has not got the request, it is malformed: Write counts it,
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
	if answer := c.instead(p); len(answer) > 0 {
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
	if c.ended != nil {
		c.ended()
	}
	c.setBegan()
	return c.Conn.Close()
}

// malformed counts a request that the server has answered itself.
func (c *conn) malformed(now time.Time) arrival { return c.front.p.malformed(c.peer, now) }

// instead counts a malformed request, and returns what to write instead of answer: nil if the
// client gets no answer.
func (c *conn) instead(answer []byte) []byte {
	now := c.front.p.o.Now()
	x := c.malformed(now)
	switch x.decision.Verdict {
	case limit.Malformed:
		return answer
	case limit.Blocked, limit.ShadowBanned:
		var text []byte
		fields, status, body := c.front.p.refusal(nil, &text, &x, now)
		return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status, http.StatusText(status), fields, len(body), body)
	default: // denied, or to be closed
		return nil
	}
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

// Kinds and flags of frames.
const (
	frameData         = 0
	frameHeaders      = 1
	frameGoAway       = 7
	frameContinuation = 9
	endHeaders        = 4
)

// read processes bytes from the client. It enforces the deadline of a header; net/http would allow
// the idle timeout.
func (w *watch) read(p []byte) {
	skip := min(len(p), len(preface)-w.preface)
	w.preface += skip
	w.in.feed(p[skip:], w.readFrame)
	switch within := w.block || w.in.within(); {
	case within && w.headerBy.IsZero():
		w.headerBy = time.Now().Add(w.conn.front.headerTimeout)
		_ = w.conn.Conn.SetReadDeadline(w.headerBy)
	case !within && !w.headerBy.IsZero():
		w.headerBy = time.Time{}
		_ = w.conn.Conn.SetReadDeadline(w.headerBy)
	}
}

func (w *watch) readFrame(f *frames) {
	if f.kind() != frameHeaders && f.kind() != frameContinuation {
		return
	}
	if f.kind() == frameHeaders && f.stream() > w.newest {
		w.newest = f.stream()
		w.open()
	}
	w.block = f.head[4]&endHeaders == 0
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
	if x := w.conn.malformed(w.conn.front.p.o.Now()); x.decision.Verdict != limit.Malformed {
		_ = w.conn.Conn.Close()
	}
}

// wrote processes bytes from the server. The server sends GOAWAY with an error to a client that does not
// speak HTTP/2.
func (w *watch) wrote(p []byte) {
	w.out.feed(p, func(f *frames) {
		if f.kind() == frameGoAway && f.n == len(f.head) && f.head[16] != 0 && !w.waits() {
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
	n    int      // bytes of head
	left int      // bytes of the frame after head
}

func (f *frames) length() int { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }
func (f *frames) kind() byte  { return f.head[3] }
func (f *frames) stream() uint32 {
	return uint32(f.head[5]&0x7f)<<24 | uint32(f.head[6])<<16 | uint32(f.head[7])<<8 | uint32(f.head[8])
}

// feed processes the next bytes, and calls begun for each frame that begins in them.
func (f *frames) feed(p []byte, begun func(*frames)) {
	for len(p) > 0 {
		if f.left > 0 {
			k := min(f.left, len(p))
			f.left -= k
			p = p[k:]
			continue
		}
		if f.whole() {
			f.n = 0
		}
		k := copy(f.head[f.n:f.want()], p)
		f.n += k
		p = p[k:]
		if f.whole() {
			f.left = f.length() - (f.n - 9)
			begun(f)
		}
	}
}

// want returns the length of head for the frame.
func (f *frames) want() int {
	if f.n < 9 {
		return 9
	}
	return 9 + min(8, f.length())
}

func (f *frames) whole() bool { return f.n >= 9 && f.n == f.want() }

// within reports whether a frame other than DATA has begun and not ended.
func (f *frames) within() bool {
	if f.n > 0 && !f.whole() {
		return f.n < 4 || f.kind() != frameData
	}
	return f.left > 0 && f.kind() != frameData
}
