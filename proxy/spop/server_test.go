package spop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
)

// hello returns a HAPROXY-HELLO frame.
func hello(versions string, size uint64, capabilities string, check bool) []byte {
	return appendFrame(nil, frameHAProxyHello, 0, 0, func(b []byte) []byte {
		b = appendString(append(appendString(b, "supported-versions"), kindString), versions)
		b = appendVarint(append(appendString(b, "max-frame-size"), kindUint32), size)
		b = appendString(append(appendString(b, "capabilities"), kindString), capabilities)
		if check {
			b = append(appendString(b, "healthcheck"), kindBool|flagTrue)
		}
		return b
	})
}

const all = "fragmentation,pipelining,async"

// notify returns the frame of a message with an argument.
func notify(stream, id uint64, text string) []byte {
	return appendFrame(nil, frameNotify, stream, id, func(b []byte) []byte { return append(b, message(text)...) })
}

func message(text string) []byte {
	b := append(appendString(nil, "say"), 1)
	return appendString(append(appendString(b, "text"), kindString), text)
}

// flagged returns a frame with other flags.
func flagged(frame []byte, flags uint32) []byte {
	binary.BigEndian.PutUint32(frame[5:], flags)
	return frame
}

// sized returns a NOTIFY frame of size bytes, not counting its length field.
func sized(size int) (frame []byte) {
	for n := size; len(frame) != lengthSize+size; n-- {
		frame = notify(1, 1, strings.Repeat("a", n))
	}
	return frame
}

// echo sets a variable to the contents of a message.
func echo(m *Message, a Actions) {
	for _, arg := range m.Args {
		a.SetString(string(arg.Name), string(arg.Value.Bytes))
	}
}

// A wire is a connection whose peer sends the bytes of in, and then waits if stays is set, else closes.
type wire struct {
	net.Conn
	in    io.Reader
	out   bytes.Buffer
	stays bool
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if err == io.EOF && w.stays {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}
func (w *wire) Write(p []byte) (int, error)      { return w.out.Write(p) }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) Close() error                     { return nil }
func (w *wire) RemoteAddr() net.Addr             { return &net.UnixAddr{} }

// newServer returns a server that refuses all peers for the reason refused, unless it is empty.
func newServer(ln net.Listener, handle func(*Message, Actions), refused string) *Server {
	return NewServer(ln, Options{
		Handle: handle, Refuse: func(net.Addr) string { return refused }, Add: func(net.Conn) (*conns.Holder, func()) { return nil, func() {} }, HelloTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
}

// converse describes the server's answers to in.
func converse(t testing.TB, in io.Reader, handle func(*Message, Actions)) (said []string, c *conn) {
	t.Helper()
	w := &wire{in: in}
	c = &conn{Conn: w, s: newServer(nil, handle, ""), most: maxFrame}
	c.serve()
	for w.out.Len() > 0 {
		said = append(said, readFrame(t, &w.out))
	}
	return said, c
}

// describe describes a frame of the agent.
func describe(t testing.TB, f *frame) string {
	t.Helper()
	var b strings.Builder
	if f.kind == frameAck {
		b.WriteString("ack " + string('0'+byte(f.stream)) + "/" + string('0'+byte(f.id)))
		for r := (&reader{rest: f.payload}); len(r.rest) > 0; {
			head, name, v := r.take(3), r.bytes(), r.value()
			if r.err != nil || !bytes.Equal(head, []byte{actionSetVar, 3, scopeTxn}) {
				t.Fatalf("invalid action %q: %v", f.payload, r.err)
			}
			b.WriteString(" " + string(name) + "=" + shorten(v))
		}
		return b.String()
	}
	b.WriteString(map[byte]string{frameAgentHello: "hello", frameAgentDisconnect: "disconnect"}[f.kind])
	r := &reader{rest: f.payload}
	for len(r.rest) > 0 {
		name, v := r.bytes(), r.value()
		b.WriteString(" " + string(name) + "=" + shorten(v))
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return b.String()
}

func shorten(v Value) string {
	switch {
	case v.Bytes == nil:
		return strconv.FormatUint(v.Int, 10)
	case len(v.Bytes) > 100:
		return "long"
	}
	return string(v.Bytes)
}

func TestConversations(t *testing.T) {
	for _, test := range []struct {
		name string
		in   [][]byte
		want []string
	}{
		{"health check", [][]byte{hello("2.0", 16380, all, true), notify(1, 1, "lost")}, []string{"hello version=2.0 max-frame-size=16380 capabilities=pipelining"}},
		{"pipelined", [][]byte{hello("1.0, 2.0", 1<<20, "pipelining", false), notify(1, 1, "a"), notify(2, 1, "b")},
			[]string{"hello version=2.0 max-frame-size=65536 capabilities=pipelining", "ack 1/1 text=a", "ack 2/1 text=b"}},
		{"disconnect", [][]byte{hello("2.0", 16380, all, false), appendFrame(nil, frameHAProxyDisconnect, 0, 0, func(b []byte) []byte { return b }), notify(1, 1, "lost")},
			[]string{"hello version=2.0 max-frame-size=16380 capabilities=pipelining", "disconnect status-code=0 message="}},
		{"no hello", [][]byte{notify(1, 1, "a")}, []string{"disconnect status-code=4 message=the first frame is not HAPROXY-HELLO"}},
		{"HTTP", [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}, []string{"disconnect status-code=3 message=a frame of 1195725856 bytes is larger than 65536"}},
		{"other version", [][]byte{hello("3.0", 16380, all, false)}, []string{"disconnect status-code=8 message=the agent supports only version 2.0"}},
		{"small frames", [][]byte{hello("2.0", 100, all, false)}, []string{"disconnect status-code=9 message=max-frame-size 100 is less than 256"}},
		{"nothing in hello", [][]byte{appendFrame(nil, frameHAProxyHello, 0, 0, func(b []byte) []byte { return b })}, []string{"disconnect status-code=9 message=max-frame-size 0 is less than 256"}},
		{"truncated message", [][]byte{hello("2.0", 256, "", false), appendFrame(nil, frameNotify, 1, 1, func(b []byte) []byte { return append(b, message("abc")[:7]...) })},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=", "disconnect status-code=4 message=a frame ends too early"}},
		{"first fragment", [][]byte{hello("2.0", 256, all, false), notify(1, 1, "a"), flagged(notify(2, 1, "b"), 0), notify(3, 1, "lost")},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 1/1 text=a", "disconnect status-code=10 message=fragmentation was not negotiated"}},
		{"last fragment", [][]byte{hello("2.0", 256, all, false), appendFrame(nil, frameUnset, 1, 1, func(b []byte) []byte { return append(b, message("a")...) })},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "disconnect status-code=10 message=fragmentation was not negotiated"}},
		{"fragment of hello", [][]byte{flagged(hello("2.0", 256, all, false), 0)}, []string{"disconnect status-code=10 message=fragmentation was not negotiated"}},
		{"aborted", [][]byte{hello("2.0", 256, all, false), flagged(notify(1, 1, "a"), flagFin|flagAbort), notify(2, 1, "b")},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 2/1 text=b"}},
		{"unknown flags", [][]byte{hello("2.0", 256, all, false), flagged(notify(1, 1, "a"), flagFin|1<<31)},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 1/1 text=a"}},
		{"largest frame", [][]byte{hello("2.0", 16380, all, false), sized(16380), notify(2, 1, "b")},
			[]string{"hello version=2.0 max-frame-size=16380 capabilities=pipelining", "ack 1/1", "ack 2/1 text=b"}},
		{"larger frame", [][]byte{hello("2.0", 16380, all, false), sized(16381)},
			[]string{"hello version=2.0 max-frame-size=16380 capabilities=pipelining", "disconnect status-code=3 message=a frame of 16381 bytes is larger than 16380"}},
		{"smallest frames", [][]byte{hello("2.0", 256, all, false), sized(256), sized(200), sized(257)},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 1/1", "ack 1/1 text=long", "disconnect status-code=3 message=a frame of 257 bytes is larger than 256"}},
		{"several messages", [][]byte{hello("2.0", 256, all, false), appendFrame(nil, frameNotify, 1, 1, func(b []byte) []byte { return append(append(b, message("a")...), message("b")...) })},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 1/1 text=a text=b"}},
		{"two streams, twice", [][]byte{hello("2.0", 256, "pipelining,async", false), notify(1, 1, "a"), notify(2, 1, "b"), notify(1, 2, "c"), notify(2, 2, "d")},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "ack 1/1 text=a", "ack 2/1 text=b", "ack 1/2 text=c", "ack 2/2 text=d"}},
		{"engine of HAProxy 3", [][]byte{hello("2.0", 16380, "pipelining", false), notify(1, 1, "a")},
			[]string{"hello version=2.0 max-frame-size=16380 capabilities=pipelining", "ack 1/1 text=a"}},
		{"health check of HAProxy 3", [][]byte{hello("2.0", 16380, "", true)}, []string{"hello version=2.0 max-frame-size=16380 capabilities="}},
		{"second hello", [][]byte{hello("2.0", 256, all, false), hello("2.0", 256, all, false)},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "disconnect status-code=4 message=unexpected frame type 1"}},
		{"unexpected kind", [][]byte{hello("2.0", 256, all, false), appendFrame(nil, frameAck, 1, 1, func(b []byte) []byte { return b })},
			[]string{"hello version=2.0 max-frame-size=256 capabilities=pipelining", "disconnect status-code=4 message=unexpected frame type 103"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := bytes.Join(test.in, nil)
			for name, r := range map[string]io.Reader{"at once": bytes.NewReader(in), "byte by byte": oneByte{bytes.NewReader(in)}} {
				if got, _ := converse(t, r, echo); !slices.Equal(got, test.want) {
					t.Errorf("%s: %q\nwant %q", name, got, test.want)
				}
			}
		})
	}
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

// startPiped starts a server, and returns a connection to it.
func startPiped(t *testing.T) (*shard.Pipe, *Server, net.Conn) {
	ln := shard.NewPipe()
	s := newServer(ln, echo, "")
	go s.Run()
	near, err := ln.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return ln, s, near
}

// A peer that sends nothing, or nothing more, is disconnected and told why, and so are all peers when the server shuts
// down.
func TestTimeouts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			send []byte
			stop bool
			want string
		}{
			{nil, false, "disconnect status-code=2 message=no frame arrived in time"},
			{hello("2.0", 16380, all, false), false, "disconnect status-code=2 message=no frame arrived in time"},
			{hello("2.0", 16380, all, false), true, "disconnect status-code=0 message=the node is stopping"},
		} {
			ln, s, near := startPiped(t)
			begin := time.Now()
			if test.send != nil {
				_, _ = near.Write(test.send)
				readFrame(t, near)
			}
			if test.stop {
				go func() { _ = s.Shutdown(t.Context()) }()
			}
			if got := readFrame(t, near); got != test.want {
				t.Errorf("%s after %v, want %s", got, time.Since(begin), test.want)
			}
			_ = ln.Close()
		}
	})
}

// The first frame must be whole within HelloTimeout, however slowly it arrives.
func TestSlowHello(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ln, _, near := startPiped(t)
		begin := time.Now()
		var slow sync.WaitGroup
		slow.Go(func() {
			for _, b := range hello("2.0", 16380, all, false) {
				if _, err := near.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(30 * time.Second)
			}
		})
		got, took := readFrame(t, near), time.Since(begin)
		if want := "disconnect status-code=2 message=no frame arrived in time"; got != want || took != time.Minute {
			t.Errorf("%s after %v, want %s after 1m", got, took, want)
		}
		_, _ = near.Close(), ln.Close()
		slow.Wait()
	})
}

func readFrame(t testing.TB, c io.Reader) string {
	t.Helper()
	head := make([]byte, lengthSize)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(c, rest); err != nil {
		t.Fatal(err)
	}
	f, err := parseFrame(rest)
	if err != nil {
		t.Fatal(err)
	}
	return describe(t, &f)
}

// greeted returns a connection to a server, to which it has sent hello. The server refuses it if reason is not empty.
func greeted(t *testing.T, handle func(*Message, Actions), reason string) net.Conn {
	t.Helper()
	ln := shard.NewPipe()
	s := newServer(ln, handle, reason)
	go s.Run()
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	near, err := ln.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = near.Write(hello("2.0", 16380, all, false))
	return near
}

// A peer that must not be served is told the reason.
func TestRefusedPeer(t *testing.T) {
	near := greeted(t, echo, "not trusted")
	if got, want := readFrame(t, near), "disconnect status-code=99 message=not trusted"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestVariables(t *testing.T) {
	set := func(_ *Message, a Actions) {
		a.SetTrue("refused")
		a.SetUint("status", 429)
		a.SetString("left_out", strings.Repeat("a", 300))
		a.SetString("rule", "login")
	}
	in := append(hello("2.0", 256, "", false), notify(1, 1, "a")...)
	got, _ := converse(t, bytes.NewReader(in), set)
	if want := "ack 1/1 refused=1 status=429 rule=login"; len(got) != 2 || got[1] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVarint(t *testing.T) {
	for v, want := range map[uint64][]byte{ // from HAProxy's documentation
		0: {0}, 239: {239}, 240: {240, 0}, 2287: {255, 127}, 2288: {240, 128, 0}, 264431: {255, 255, 127}, 264432: {240, 128, 128, 0},
	} {
		if got := appendVarint(nil, v); !bytes.Equal(got, want) {
			t.Errorf("appendVarint(%d) = %v, want %v", v, got, want)
		}
	}
	for v := uint64(1); v != 0; v <<= 1 {
		for _, v := range []uint64{v - 1, v, ^v} {
			r := &reader{rest: appendVarint(nil, v)}
			if got := r.varint(); got != v || r.err != nil || len(r.rest) > 0 {
				t.Errorf("varint of %d = %d, %v", v, got, r.err)
			}
		}
	}
	r := &reader{rest: bytes.Repeat([]byte{255}, 20)}
	var protocol *protocolError
	if r.varint(); !errors.As(r.err, &protocol) {
		t.Errorf("varint without an end: %v", r.err)
	}
}

func TestHeaders(t *testing.T) {
	bin := []byte("\x04host\x01a\x01x\x00\x00\x00")
	for whole, want := range map[int]string{len(bin): "host=a x=", len(bin) - 1: "host=a x=", 8: "host=a", 6: "", 0: ""} {
		var got []string
		Headers(bin[:whole], func(name, value []byte) { got = append(got, string(name)+"="+string(value)) })
		if strings.Join(got, " ") != want {
			t.Errorf("Headers of the first %d bytes = %q, want %q", whole, got, want)
		}
	}
}

// Whatever a peer sends, the server answers in frames and stays within its bounds.
func FuzzConversation(f *testing.F) {
	f.Add(bytes.Join([][]byte{hello("2.0", 16380, all, false), notify(1, 1, "a")}, nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, in := range [][]byte{in, append(hello("2.0", 1024, all, false), in...)} {
			_, c := converse(t, bytes.NewReader(in), func(m *Message, a Actions) {
				for _, arg := range m.Args {
					Headers(arg.Value.Bytes, func(_, _ []byte) {})
				}
				echo(m, a)
			})
			if c.in.Size() > maxFrame+lengthSize || cap(c.out) > 8*maxFrame {
				t.Errorf("the connection keeps %d and %d bytes", c.in.Size(), cap(c.out))
			}
		}
	})
}

// A panic while a message is handled ends its connection, not the process.
func TestPanics(t *testing.T) {
	near := greeted(t, func(*Message, Actions) { panic("a message") }, "")
	readFrame(t, near)
	_, _ = near.Write(notify(1, 1, "a"))
	if n, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v; want the end of the connection", n, err)
	}
}
