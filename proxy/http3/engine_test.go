package http3_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http3"
)

// A handler answers each request with its head, refuses DELETE, and counts malformed requests.
type handler struct {
	malformed chan netip.Addr
}

func (h *handler) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	if string(r.Method()) == "DELETE" {
		s.Refuse(false)
	}
	s.Answer(200, nil, string(r.Method())+" "+string(r.Host())+string(r.Target()))
	return nil, nil
}

func (h *handler) Malformed(peer netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	h.malformed <- peer
	if err == nil {
		return nil, 0, "", false
	}
	return nil, err.Status, err.Text + "\n", false
}

// start starts a server, and returns its address and the handler that counts malformed requests.
func start(t *testing.T, set func(*http3.Options)) (addr string, h *handler, memory *conns.Budget) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h, memory = startAt(t, socket, set)
	return socket.LocalAddr().String(), h, memory
}

// startAt starts a server for the packets of socket.
func startAt(t *testing.T, socket net.PacketConn, set func(*http3.Options)) (h *handler, memory *conns.Budget) {
	t.Helper()
	h, memory = &handler{make(chan netip.Addr, 1000)}, conns.NewBudget(1<<20, 0, func(bool) {})
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	limits := http1.Limits{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, MaxStreams: 10, MaxOverhead: 100}
	o := http3.Options{
		Options: http1.Options{Limits: limits, Handler: h, Logger: slog.New(slog.DiscardHandler)}, TLS: certified.TLS,
		Client: func(peer netip.Addr) netip.Addr { return peer },
		Add: func(conn io.Closer, peer netip.Addr) (*conns.Holder, func()) {
			held := memory.Holder(conn, peer)
			return held, func() { held.Hold(0) }
		},
	}
	if set != nil {
		set(&o)
	}
	s, err := http3.NewServer(socket, o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Run()
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(now)
	})
	return h, memory
}

func dial(t *testing.T, addr string) *quic.Conn {
	t.Helper()
	c, err := quic.DialAddr(t.Context(), addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}, &quic.Config{HandshakeIdleTimeout: time.Minute, MaxIdleTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseWithError(0x100, "") })
	return c
}

// send opens a stream with these bytes.
func send(t *testing.T, c *quic.Conn, text string, end bool) *quic.Stream {
	t.Helper()
	s, err := c.OpenStreamSync(t.Context())
	if err == nil {
		_, err = io.WriteString(s, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if end {
		_ = s.Close() // the server may have reset the stream
	}
	return s
}

// get is the frame of a request: GET, https and the path / from the static table, and the authority a.
const get = "\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a"

// post is that of a POST.
const post = "\x01\x08\x00\x00\xd4\xd7\xc1\x50\x01a"

// Requests that are malformed count. Their streams are reset, or their connections closed.
func TestMalformed(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		code       uint64
		closes     bool
	}{
		{"no path", "\x01\x07\x00\x00\xd1\xd7\x50\x01a", 0x10e, false},
		{"no method", "\x01\x07\x00\x00\xd7\xc1\x50\x01a", 0x10e, false},
		{"a field of HTTP/1.1", "\x01\x16\x00\x00\xd1\xd7\xc1\x50\x01a\x27\x03connection\x01a", 0x10e, false},
		{"no header", "\x00\x01a", 0x105, true},
		{"a frame of HTTP/2", "\x02\x00", 0x105, true},
		{"settings", "\x04\x00", 0x105, true},
		{"incomplete", get[:5], 0x106, true},
		{"nothing", "", 0x10d, false},
		{"dynamic table", "\x01\x03\x02\x00\x80", 0x200, true},
		{"a negative Base", "\x01\x08\x00\x80" + get[4:], 0x200, true},
		{"a truncated Base", "\x01\x03\x00\x7f\x80", 0x200, true},
		{"no Base", "\x01\x01\x00", 0x200, true},
		{"nothing after a Base of two bytes", "\x01\x03\x00\x7f\x00", 0x10e, false},
		{"a huge header", "\x01\x80\x10\x00\x00", 0x107, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, h, _ := start(t, nil)
			c := dial(t, addr)
			s := send(t, c, tt.text, true)
			_, err := io.ReadAll(s)
			<-h.malformed
			switch e := err.(type) {
			case *quic.StreamError:
				if tt.closes || uint64(e.ErrorCode) != tt.code {
					t.Errorf("the stream ends with %v", err)
				}
			case *quic.ApplicationError:
				if !tt.closes || uint64(e.ErrorCode) != tt.code {
					t.Errorf("the connection ends with %v", err)
				}
			default:
				t.Errorf("error %v", err)
			}
		})
	}
}

// A header that does not arrive in time counts as malformed. One that is cut off does not, because the client may have
// lost the connection.
func TestIncompleteHeader(t *testing.T) {
	t.Parallel()
	addr, h, memory := start(t, func(o *http3.Options) { o.ReadHeaderTimeout = 2 * time.Second })
	for _, leave := range []func(*quic.Conn, *quic.Stream){
		func(_ *quic.Conn, s *quic.Stream) { s.CancelWrite(0x10c) },
		func(c *quic.Conn, _ *quic.Stream) { _ = c.CloseWithError(0x100, "") },
	} {
		addr, h, _ := start(t, nil)
		c := dial(t, addr)
		s := send(t, c, get[:5], false)
		if whole, err := io.ReadAll(send(t, c, get, true)); err != nil {
			t.Fatal(whole, err)
		}
		leave(c, s)
		<-s.Context().Done()
		c = dial(t, addr)
		if whole, err := io.ReadAll(send(t, c, get, true)); err != nil || len(h.malformed) > 0 {
			t.Errorf("%q, %v; %d malformed requests", whole, err, len(h.malformed))
		}
	}
	c := dial(t, addr)
	s := send(t, c, get[:5], false)
	<-h.malformed
	if _, err := io.ReadAll(s); err == nil || memory.Bytes() != 0 {
		t.Errorf("error %v, %d bytes are held", err, memory.Bytes())
	}
}

// Frames of unknown types are skipped, and a client may send a header bit by bit.
func TestRequestInParts(t *testing.T) {
	addr, _, _ := start(t, nil)
	c := dial(t, addr)
	whole, err := io.ReadAll(send(t, c, get, true))
	if err != nil || !strings.HasSuffix(string(whole), "GET a/") {
		t.Fatalf("%q, %v", whole, err)
	}
	for _, base := range []string{"\x05", "\x7e", "\x7f\x00", "\x7f\x80\x01"} { // without the dynamic table, it does not matter
		based := "\x01" + string(rune(7+len(base))) + "\x00" + base + get[4:]
		if got, err := io.ReadAll(send(t, c, based, true)); err != nil || string(got) != string(whole) {
			t.Errorf("with the Base %q, %q, %v; want %q", base, got, err, whole)
		}
	}
	s := send(t, c, "", false)
	for _, b := range []byte("\x21\x03abc" + get + "\x40\x21\x00") {
		if _, err := s.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	got, err := io.ReadAll(s)
	if err != nil || string(got) != string(whole) {
		t.Errorf("%q, %v; want %q", got, err, whole)
	}
}

// Incomplete headers hold memory of the budget until they are complete.
func TestMemoryOfHeaders(t *testing.T) {
	addr, _, memory := start(t, nil)
	c := dial(t, addr)
	var all []*quic.Stream
	for range 6 {
		all = append(all, send(t, c, "\x01\x50\x00"+get[2:4], false))
	}
	for memory.Bytes() == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, s := range all {
		s.CancelWrite(0x10c)
	}
	for memory.Bytes() != 0 {
		time.Sleep(time.Millisecond)
	}
}

// A holding handler holds all requests until release is closed.
type holding struct {
	*handler
	serving, release chan struct{}
}

func (h holding) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	h.serving <- struct{}{}
	<-h.release
	return h.handler.Serve(s, r)
}

// Requests whose header is complete hold none of it, however long they last.
func TestMemoryOfLongRequests(t *testing.T) {
	h := holding{handler: new(handler), serving: make(chan struct{}), release: make(chan struct{})}
	defer close(h.release)
	addr, _, memory := start(t, func(o *http3.Options) { o.Handler = h })
	c := dial(t, addr)
	const n = 6
	for range n {
		send(t, c, post, false)
	}
	for range n {
		<-h.serving
	}
	if got := memory.Bytes(); got != 0 {
		t.Errorf("%d bytes are held, want none", got)
	}
}

// A header whose stream has not ended holds the memory that it needs when it is decoded.
func TestMemoryOfDecodedHeaders(t *testing.T) {
	addr, _, memory := start(t, nil)
	c := dial(t, addr)
	for range 8 {
		send(t, c, "\x01\x40\xbc"+get[2:]+strings.Repeat("\xff\x16", 90), false) // each is a field of 75 bytes
	}
	for memory.Bytes() < 8*90*75 {
		time.Sleep(time.Millisecond)
	}
}

// A connection that is closed because of frames that mean nothing counts as one malformed request.
func TestOverheadCountsOnce(t *testing.T) {
	addr, h, _ := start(t, nil)
	c := dial(t, addr)
	send(t, c, strings.Repeat("\x21\x00", 500), false)
	<-c.Context().Done()
	send(t, dial(t, addr), "", true)
	<-h.malformed
	<-h.malformed // the other connection's
	if n := len(h.malformed); n > 0 {
		t.Errorf("%d further malformed requests", n)
	}
}

// A client that resets streams, or sends frames that mean nothing, loses its connection.
func TestOverhead(t *testing.T) {
	for name, part := range map[string]func(*quic.Conn) error{
		"resets": func(c *quic.Conn) error {
			s, err := c.OpenStreamSync(t.Context())
			if err == nil {
				_, err = io.WriteString(s, "\x01")
				s.CancelWrite(0x10c)
			}
			return err
		},
		"empty frames": func(c *quic.Conn) error {
			s, err := c.OpenStreamSync(t.Context())
			for range 100 {
				if err == nil {
					_, err = io.WriteString(s, get+strings.Repeat("\x21\x00", 100))
				}
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, _, _ := start(t, nil)
			c := dial(t, addr)
			for part(c) == nil {
			}
			<-c.Context().Done()
			if e, ok := context.Cause(c.Context()).(*quic.ApplicationError); !ok || e.ErrorCode != 0x107 {
				t.Errorf("the connection ends with %v, want H3_EXCESSIVE_LOAD", context.Cause(c.Context()))
			}
		})
	}
}

// A tap is a client's socket that counts Retry packets, or that receives nothing.
type tap struct {
	net.PacketConn
	deaf    bool
	retries atomic.Int32
}

func (p *tap) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	for {
		n, from, err = p.PacketConn.ReadFrom(b)
		if n > 0 && b[0]&0xf0 == 0xf0 { // RFC 9000, 17.2.5
			p.retries.Add(1)
		}
		if !p.deaf || err != nil {
			return n, from, err
		}
	}
}

// connect opens a connection from a socket of its own, unless the client is deaf: then it returns when ctx is done.
func connect(ctx context.Context, t *testing.T, addr string, deaf bool) (p *tap, err error) {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", addr)
	p = &tap{deaf: deaf}
	if err == nil {
		p.PacketConn, err = net.ListenPacket("udp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: p}
	t.Cleanup(func() { _ = tr.Close(); _ = p.Close() })
	_, err = tr.Dial(ctx, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}, &quic.Config{HandshakeIdleTimeout: time.Minute, MaxIdleTimeout: 5 * time.Minute})
	return p, err
}

// While many handshakes are incomplete, a client must verify its address, and gets its connection.
func TestRetry(t *testing.T) {
	addr, _, _ := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if p, err := connect(ctx, t, addr, false); err != nil || p.retries.Load() != 0 {
		t.Fatalf("%v, %d retries, want none", err, p.retries.Load())
	}
	for range 80 { // more than 64, because some begin late
		go func() { _, _ = connect(ctx, t, addr, true) }()
	}
	for {
		p, err := connect(ctx, t, addr, false)
		if err != nil {
			t.Fatal(err)
		}
		if p.retries.Load() > 0 {
			return
		}
	}
}

// first returns the first packets of connections to a server that does not answer.
func first(t *testing.T, connections int) (packets [][]byte) {
	t.Helper()
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	for range connections {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = connect(ctx, t, sink.LocalAddr().String(), true) }()
		buf := make([]byte, 2000)
		n, _, err := sink.ReadFrom(buf)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, buf[:n])
	}
	return packets
}

// A flood of first packets, with forged addresses or not, keeps no client from connecting: the node lets each address
// begin few handshakes, and those of addresses that do not receive its packets end at a Retry.
func TestFloodOfFirstPackets(t *testing.T) {
	addr, _, _ := start(t, nil)
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	packets := first(t, 300)
	ended, sent := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(ended) })
	defer stop()
	go func() {
		defer close(sent)
		for i := 0; ; i++ {
			forged, err := net.ListenPacket("udp", fmt.Sprintf("127.0.%d.%d:0", 1+i/200%200, 1+i%200))
			if err != nil {
				continue
			}
			for j, p := range packets {
				p[6+j%8] ^= byte(1 + i) // another connection
				_, _ = forged.WriteTo(p, to)
			}
			_ = forged.Close()
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond): // the kernel drops what comes faster than the node reads
			}
		}
	}()
	for range 5 {
		c := dial(t, addr)
		if whole, err := io.ReadAll(send(t, c, get, true)); err != nil || len(whole) == 0 {
			t.Errorf("%q, %v", whole, err)
		}
		_ = c.CloseWithError(0x100, "")
	}
	stop()
	<-sent
}
