package http2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
	"github.com/edgelimit/edge/proxy/http2/http2test"
)

// patience is how long a test waits for something that must happen. No test depends on its length.
const patience = 2 * time.Minute

// A relay passes everything on, but refuses paths that begin with /refused.
type relay struct {
	origin    *http1.Origin
	malformed atomic.Int64
}

type passing struct {
	plain
	s http1.Asker
	r *http1.Request
}

func (p passing) Relayed(err error) {
	if err == nil {
		return
	}
	status := 502
	if err.(*http1.RelayError).Client {
		status = 400
	}
	p.s.Answer(status, nil, err.Error()+"\n")
}

// large is a body that fills a frame.
var large = strings.Repeat("x", 16<<10)

var tooMany = []byte("Retry-After: 1\r\nContent-Type: text/plain\r\n")

func (h *relay) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	if string(r.Path()) == "/refused/borrowed" { // the body's memory is reused
		body := []byte("slow down\n")
		s.Answer(429, tooMany, unsafe.String(&body[0], len(body)))
		clear(body)
		return nil, nil
	}
	if string(r.Path()) == "/refused/large" {
		s.Answer(429, tooMany, large)
		return nil, nil
	}
	if bytes.HasPrefix(r.Path(), []byte("/refused")) {
		s.Answer(429, tooMany, "slow down\n")
		return nil, nil
	}
	return h.origin, passing{s: s, r: r}
}

func (h *relay) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	h.malformed.Add(1)
	return explain(err)
}

// explain answers a malformed request with the reason, or resets its stream if err is nil.
func explain(err *http1.Error) (fields []byte, status int, body string, end bool) {
	if err == nil {
		return nil, 0, "", false
	}
	return []byte("Content-Type: text/plain; charset=utf-8\r\n"), err.Status, err.Text + "\n", false
}

type plain struct{}

func (plain) Keeps(*http1.Field, []byte) bool { return true }
func (plain) KeepsTrailer([]byte) bool        { return true }
func (plain) Hasty() bool                     { return false }
func (plain) Gone(func()) bool                { return false }
func (plain) AppendRequest(dst []byte) []byte { return append(dst, "X-Via: edge\r\n"...) }
func (plain) Body([]byte, bool)               {}
func (plain) Answered(dst []byte, _ *http1.Answer) ([]byte, bool) {
	return append(dst, "X-Node: n1\r\n"...), true
}

// An engine is a server in front of an origin.
type engine struct {
	*http2.Server
	h *relay
}

func start(t testing.TB, origin http.HandlerFunc, set func(*http1.Options)) *engine {
	t.Helper()
	h := &relay{}
	if origin != nil {
		back := httptest.NewServer(origin)
		t.Cleanup(back.Close)
		h.origin = http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
		t.Cleanup(h.origin.Close)
	}
	o := http1.Options{Handler: h, Limits: http1.Limits{MaxStreams: 128, MaxOverhead: 1000, ReadHeaderTimeout: patience, IdleTimeout: patience, BodyTimeout: patience, MaxHeaderBytes: 16 << 10}}
	if set != nil {
		set(&o)
	}
	e := &engine{http2.NewServer(o), h}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Shutdown(ctx)
	})
	return e
}

// connect returns a connection to e.
func (e *engine) connect(t testing.TB) net.Conn {
	t.Helper()
	return connect(t, e.Accept)
}

// connect returns a connection that serve serves.
func connect(t testing.TB, serve func(net.Conn, http1.Start) func()) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go serve(far, http1.Start{Since: time.Now()})()
	_ = near.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = near.Close() })
	return near
}

// A client speaks HTTP/2 frame by frame.
type client struct {
	*xhttp2.Framer
	t    testing.TB
	conn net.Conn
	hp   *hpack.Encoder
	buf  bytes.Buffer
	next uint32 // stream
}

// client connects a client, which has sent its settings.
func (e *engine) client(t testing.TB, settings ...xhttp2.Setting) *client {
	t.Helper()
	return newClient(t, e.connect(t), settings...)
}

// piped connects a client by a pipe: the engine cannot write while the client does not read.
func (e *engine) piped(t testing.TB, settings ...xhttp2.Setting) *client {
	t.Helper()
	near, err := http2test.Dial(func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go e.Accept(far, http1.Start{Since: time.Now()})()
		return near, nil
	})(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, near, settings...)
}

// newClient returns a client that has sent its settings over conn.
func newClient(t testing.TB, conn net.Conn, settings ...xhttp2.Setting) *client {
	t.Helper()
	c := &client{t: t, conn: conn, next: 1}
	c.hp = hpack.NewEncoder(&c.buf)
	_, _ = io.WriteString(c.conn, xhttp2.ClientPreface)
	c.Framer = xhttp2.NewFramer(c.conn, c.conn)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.check(c.WriteSettings(settings...))
	return c
}

func (c *client) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// block returns a header block of fields, given as name, value, ….
func (c *client) block(fields ...string) []byte {
	c.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.hp.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return c.buf.Bytes()
}

// get begins a request and returns its stream. It has a body unless end is set.
func (c *client) get(end bool, path string, fields ...string) uint32 {
	c.t.Helper()
	method := "GET"
	if !end {
		method = "POST"
	}
	id := c.next
	c.next += 2
	fields = append([]string{":method", method, ":scheme", "http", ":authority", "a.example", ":path", path}, fields...)
	c.check(c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block(fields...), EndStream: end, EndHeaders: true}))
	return id
}

// outcome returns what becomes of a stream: a status and a body, or how it or the connection ends.
func (c *client) outcome(id uint32) string {
	c.t.Helper()
	status, body := "", ""
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return fmt.Sprint("end: ", err)
		}
		switch f := f.(type) {
		case *xhttp2.MetaHeadersFrame:
			if f.StreamID == id {
				if f.PseudoValue("status") != "" {
					status = f.PseudoValue("status")
				}
				if f.StreamEnded() {
					return strings.TrimSpace(status + " " + body)
				}
			}
		case *xhttp2.DataFrame:
			if f.StreamID == id {
				body += string(f.Data())
				if f.StreamEnded() {
					return strings.TrimSpace(status + " " + body)
				}
			}
		case *xhttp2.RSTStreamFrame:
			if f.StreamID == id {
				return strings.TrimSpace(status + " " + f.ErrCode.String())
			}
		case *xhttp2.GoAwayFrame:
			if f.ErrCode != xhttp2.ErrCodeNo {
				return "GOAWAY " + f.ErrCode.String()
			}
		}
	}
}

// dialer returns a function that connects to addr.
func dialer(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}
