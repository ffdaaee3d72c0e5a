// Package spop is an agent for HAProxy's stream processing offload protocol (SPOP, version 2.0): HAProxy
// sends messages about requests, and the agent's answers set variables. It knows nothing about rules.
//
// One goroutine serves each connection. It answers all frames of one read with one write, in order, so HAProxy may
// pipeline frames. Of SPOP's capabilities, the agent supports neither async, since answers go out on the connection of
// the query, nor fragmentation, since HAProxy's largest header fits in a frame of its default size.
package spop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// Options configures a Server. All fields are required.
type Options struct {
	// Handle answers a message. It is called by the goroutines of connections and must not block.
	Handle func(m *Message, a Actions)

	// Refuse returns why the agent must not serve a peer, or "".
	Refuse func(net.Addr) string

	// Add counts a connection. It returns the holder of the memory of incomplete frames, and a function to call once when
	// the connection has ended.
	Add func(net.Conn) (held *conns.Holder, ended func())

	// HelloTimeout is how long a peer may take to send its first frame.
	HelloTimeout time.Duration

	// Logger logs problems with connections.
	Logger *slog.Logger
}

// A Server serves connections of HAProxy. Its methods may be called concurrently.
type Server struct {
	conns.Server[*conn]
	o  Options
	ln net.Listener
}

// NewServer returns a server for the connections of ln. Shutdown answers the frames that were received before.
func NewServer(ln net.Listener, o Options) *Server {
	return &Server{o: o, ln: ln}
}

// Run serves connections until Shutdown.
func (s *Server) Run() {
	for {
		nc, err := s.ln.Accept()
		if err != nil {
			return
		}
		held, ended := s.o.Add(nc)
		c := &conn{Conn: nc, s: s, most: maxHello, held: held, since: time.Now()}
		if done := s.Begin(c, nc, ended); done != nil {
			go func() {
				defer done()
				defer c.Close()
				defer conns.LogPanic(s.o.Logger, "panic while answering HAProxy")
				c.serve()
			}()
		}
	}
}

// Shutdown closes the listener, and ends the connections: see [conns.Server.Shutdown].
func (s *Server) Shutdown(ctx context.Context) error {
	_ = s.ln.Close()
	return s.Server.Shutdown(ctx)
}

// A conn is a connection of HAProxy.
type conn struct {
	net.Conn
	s     *Server
	in    *bufio.Reader
	out   []byte
	most  int // maximum size of a frame, in either direction
	held  *conns.Holder
	since time.Time // when HelloTimeout began
	hello bool      // the HELLO frames were exchanged
	m     Message
}

// Leave makes the connection end when it waits for a frame.
func (c *conn) Leave(bool) { _ = c.SetReadDeadline(conns.Past) }

func (c *conn) Cut() { _ = c.Close() }

// errEnd ends a connection after pending frames are sent.
var errEnd = errors.New("spop: the connection has ended")

const (
	idleTimeout  = time.Hour       // between frames
	writeTimeout = 5 * time.Second // how long HAProxy may leave answers unread
)

// serve answers frames until the connection ends.
func (c *conn) serve() {
	err := c.loop()
	timedOut := errors.Is(err, os.ErrDeadlineExceeded)
	var protocol *protocolError
	switch {
	case errors.As(err, &protocol):
		c.s.o.Logger.Debug("SPOP connection ended", "peer", c.RemoteAddr(), "err", err)
		c.out = appendDisconnect(c.out, protocol.code, protocol.text)
	case timedOut && c.s.Ending.Load():
		c.out = appendDisconnect(c.out, codeNormal, "the node is stopping")
	case timedOut:
		c.out = appendDisconnect(c.out, codeTimeout, "no frame arrived in time")
	}
	_ = c.flush()
}

// loop reads frames and answers them, until an error or errEnd.
func (c *conn) loop() error {
	c.in = bufio.NewReader(c.Conn)
	for {
		length, err := c.peek(lengthSize)
		if err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length)
		if n > uint32(c.most) {
			return &protocolError{codeTooBig, fmt.Sprintf("a frame of %d bytes is larger than %d", n, c.most)}
		}
		whole, err := c.peek(lengthSize + int(n))
		if err != nil {
			return err
		}
		f, err := parseFrame(whole[lengthSize:])
		if err == nil {
			err = c.handle(&f)
		}
		if err == nil && len(c.out) > maxFrame {
			err = c.flush()
		}
		if err != nil {
			return err
		}
		_, _ = c.in.Discard(len(whole))
	}
}

// peek returns the next n bytes of a frame, which stay in the buffer. It flushes before it waits for them.
func (c *conn) peek(n int) ([]byte, error) {
	if c.in.Buffered() >= n {
		return c.in.Peek(n)
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	if n > c.in.Size() { // most frames are small
		c.in = bufio.NewReaderSize(c.in, lengthSize+c.most)
	}
	by, holds := time.Now().Add(idleTimeout), 0
	if !c.hello {
		by = c.since.Add(c.s.o.HelloTimeout)
	}
	if !c.hello || n > lengthSize {
		holds = c.in.Size()
	}
	c.held.Hold(holds)
	_ = c.SetReadDeadline(by)
	if c.s.Ending.Load() { // the deadline above may have replaced that of Shutdown
		_ = c.SetReadDeadline(conns.Past)
	}
	return c.in.Peek(n)
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.Write(c.out)
	c.out = c.out[:0]
	return err
}

// handle answers a frame.
func (c *conn) handle(f *frame) error {
	switch {
	case f.flags&flagFin == 0 || f.kind == frameUnset:
		return &protocolError{codeFragments, "fragmentation was not negotiated"}
	case f.kind == frameHAProxyDisconnect:
		c.out = appendDisconnect(c.out, codeNormal, "")
		return errEnd
	case !c.hello && f.kind != frameHAProxyHello:
		return &protocolError{codeInvalid, "the first frame is not HAPROXY-HELLO"}
	case !c.hello:
		return c.greet(f)
	case f.kind != frameNotify:
		return &protocolError{codeInvalid, fmt.Sprintf("unexpected frame type %d", f.kind)}
	case f.flags&flagAbort != 0:
		return nil
	}
	return c.answer(f)
}

// answer answers the messages of a NOTIFY frame.
func (c *conn) answer(f *frame) (err error) {
	const head = 32 // of a frame, at most
	before := len(c.out)
	c.out = appendFrame(c.out, frameAck, f.stream, f.id, func(b []byte) []byte {
		a := &actions{b, len(b) + c.most - head}
		err = messages(f.payload, &c.m, func(m *Message) { c.s.o.Handle(m, a) })
		return a.buf
	})
	if err != nil {
		c.out = c.out[:before]
	}
	return err
}

// greet answers HAPROXY-HELLO: it negotiates the version, the frame size and the capabilities.
func (c *conn) greet(f *frame) error {
	versions, capabilities, size, check := "", "", uint64(0), false
	r := &reader{rest: f.payload}
	for len(r.rest) > 0 {
		switch name, v := r.bytes(), r.value(); string(name) {
		case "supported-versions":
			versions = string(v.Bytes)
		case "max-frame-size":
			size = v.Int
		case "capabilities":
			capabilities = string(v.Bytes)
		case "healthcheck":
			check = v.Int == 1
		}
	}
	switch {
	case r.err != nil:
		return r.err
	case size < minFrame:
		return &protocolError{codeFrameSize, fmt.Sprintf("max-frame-size %d is less than %d", size, minFrame)}
	case !has(versions, "2.0"):
		return &protocolError{codeVersion, "the agent supports only version 2.0"}
	}
	if why := c.s.o.Refuse(c.RemoteAddr()); why != "" {
		return &protocolError{codeUnknown, why}
	}
	agreed := ""
	if has(capabilities, "pipelining") {
		agreed = "pipelining"
	}
	c.hello, c.most = true, int(min(size, maxFrame))
	c.out = appendFrame(c.out, frameAgentHello, 0, 0, func(b []byte) []byte {
		b = appendText(b, "version", "2.0")
		b = appendUint(b, "max-frame-size", uint32(c.most))
		return appendText(b, "capabilities", agreed)
	})
	if check {
		return errEnd
	}
	return nil
}

func has(list, element string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return strings.TrimSpace(s) == element })
}

func appendDisconnect(dst []byte, c code, text string) []byte {
	return appendFrame(dst, frameAgentDisconnect, 0, 0, func(b []byte) []byte {
		return appendText(appendUint(b, "status-code", uint32(c)), "message", text)
	})
}
