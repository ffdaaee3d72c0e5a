package http2_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy/http1"
)

// The node sends no more than the client has room for, on the stream and on the connection, and everything
// once there is room. An answer that waits does not use the caller's memory.
func TestWindows(t *testing.T) {
	e := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100_000)) }, nil)
	c := e.client(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 7})
	one, two := c.get(true, "/"), c.get(true, "/refused/borrowed")
	refusal := ""
	room := map[uint32]int{0: 65535, one: 7, two: 7}
	ended := 0
	for ended < 2 {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		data, ok := f.(*xhttp2.DataFrame)
		if !ok {
			continue
		}
		n := len(data.Data())
		if data.StreamID == two {
			refusal += string(data.Data())
		}
		room[0] -= n
		if room[data.StreamID] -= n; room[0] < 0 || room[data.StreamID] < 0 {
			t.Fatalf("%d bytes on stream %d are more than there is room for", n, data.StreamID)
		}
		if data.StreamEnded() {
			ended++
			continue
		}
		for _, id := range []uint32{0, data.StreamID} {
			if room[id] == 0 {
				room[id] = 7000
				c.check(c.WriteWindowUpdate(id, 7000))
			}
		}
	}
	if want := "slow down\n"; refusal != want {
		t.Errorf("the refusal is %q, want %q", refusal, want)
	}
}

// An answer that waits for room goes on as soon as there is some, however the client makes it.
func TestRoomWakes(t *testing.T) {
	initial := func(n uint32) xhttp2.Setting { return xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: n} }
	for _, tt := range []struct {
		name  string
		large int // answers of 16 KB before this one
		room  uint32
		widen func(*client, uint32) error
	}{
		{"a stream's window", 0, 7, func(c *client, id uint32) error { return c.WriteWindowUpdate(id, 100) }},
		{"a setting", 0, 7, func(c *client, _ uint32) error { return c.WriteSettings(initial(100)) }},
		{"the connection's window", 3, 65535, func(c *client, _ uint32) error { return c.WriteWindowUpdate(0, 100) }},
	} {
		bubble.Test(t, func(t *testing.T) {
			c := start(t, nil, nil).piped(t, initial(tt.room))
			path, body := "/refused", "slow down"
			if tt.large > 0 {
				path, body = "/refused/large", large
			}
			for range tt.large {
				c.outcome(c.get(true, path))
			}
			id := c.get(true, path)
			first := int(tt.room) - tt.large*len(body)
			c.await(func(f xhttp2.Frame) bool {
				return f.Header().Type == xhttp2.FrameData && int(f.Header().Length) == first
			})
			synctest.Wait() // the rest waits
			since := time.Now()
			c.check(tt.widen(c, id))
			if got, want := c.outcome(id), body[first:]; got != want || time.Since(since) > 0 {
				t.Errorf("%s: the rest is %q after %v, want %q at once", tt.name, got, time.Since(since), want)
			}
			_ = c.conn.Close()
		})
	}
}

// A connection is idle from its last answer on, however long that took.
func TestIdleAfterLongRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := start(t, nil, func(o *http1.Options) { o.IdleTimeout = 10 * time.Second })
		e.h.origin = pipedOrigin(func(*http.Request) string {
			time.Sleep(time.Minute)
			return "late"
		})
		defer e.h.origin.Close()
		c := e.piped(t)
		for range 2 {
			if got := c.outcome(c.get(true, "/")); got != "200 late" {
				t.Fatalf("%q, want 200 late", got)
			}
			c.awaitRead() // the engine sets the deadline with its next read
			time.Sleep(9 * time.Second)
		}
		_ = c.conn.Close()
	})
}

// Each frame has the whole time to arrive, whatever earlier ones took.
func TestSlowFrames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := start(t, nil, func(o *http1.Options) { o.IdleTimeout = time.Hour }).piped(t)
		for range 3 {
			_, _ = io.WriteString(c.conn, "\x00\x00\x08\x06\x00\x00\x00\x00\x00") // of a PING
			time.Sleep(patience - time.Second)
			_, _ = io.WriteString(c.conn, "12345678")
			c.await(func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
		}
		_ = c.conn.Close()
	})
}

// If a client has no room for its answer for too long, its stream is reset and the origin is released.
func TestClientsThatDoNotRead(t *testing.T) {
	free := make(chan struct{})
	e := start(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(free)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}, func(o *http1.Options) { o.BodyTimeout = time.Second }) // enough for the engine to write its frames
	c := e.client(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1})
	if got := c.outcome(c.get(true, "/")); got != "200 CANCEL" {
		t.Errorf("%q, want a reset stream", got)
	}
	<-free
}

// Windows bound what a client sends, and open as the origin accepts it. A client that sends more gets an
// error. Data that nobody needs does not use up the connection's window.
func TestReceiveWindows(t *testing.T) {
	take := make(chan struct{})
	e := start(t, func(_ http.ResponseWriter, r *http.Request) {
		<-take
		_, _ = io.Copy(io.Discard, r.Body)
	}, nil)
	c := e.client(t)
	part := make([]byte, 16384)
	for range 10 {
		id := c.get(false, "/refused")
		for range 16 {
			c.check(c.WriteData(id, false, part))
		}
		if got := c.outcome(id); got != "429 slow down" {
			t.Fatalf("%q, want 429", got)
		}
	}
	id := c.get(false, "/")
	go func() {
		for n := 0; n < 20<<20/len(part) && c.WriteData(id, false, part) == nil; n++ {
		}
	}()
	got := c.outcome(id)
	close(take)
	if got != "FLOW_CONTROL_ERROR" && got != "GOAWAY FLOW_CONTROL_ERROR" {
		t.Errorf("a client that sends more than it may: %q, want FLOW_CONTROL_ERROR", got)
	}
}

// A client gets the connection's window back for bodies that no origin has taken, whether or not it resets the streams.
func TestWindowsOfFailedUploads(t *testing.T) {
	dialing, fail := make(chan struct{}), make(chan struct{})
	e := start(t, nil, nil)
	e.h.origin = http1.NewOrigin(func() (net.Conn, error) {
		dialing <- struct{}{}
		<-fail
		return nil, errors.New("the origin is down")
	}, patience)
	c := e.client(t)
	for _, resets := range []bool{false, true} {
		id := c.get(false, "/")
		<-dialing
		c.fillWindow(id, true)
		if resets {
			c.check(c.WriteRSTStream(id, xhttp2.ErrCodeCancel))
		}
		c.awaitRead()
		fail <- struct{}{}
		c.awaitWindow()
	}
}

// A late relay begins to relay when it is told to.
type late struct {
	*relay
	begin chan struct{}
}

func (l late) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	return l.origin, latePassing{passing{s: s, r: r}, l.begin}
}

type latePassing struct {
	passing
	begin chan struct{}
}

// Hasty is called before anything is read or sent.
func (p latePassing) Hasty() bool {
	<-p.begin
	return false
}

// A client gets its windows back for a body that has filled them before the request is relayed, whether or not
// that is the whole body, and before the origin answers.
func TestWindowsOfLateRelays(t *testing.T) {
	for _, whole := range []bool{false, true} {
		answer := make(chan struct{})
		back := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(back.Close)
		l := late{new(relay), make(chan struct{})}
		l.origin = http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
		t.Cleanup(l.origin.Close)
		c := start(t, nil, func(o *http1.Options) { o.Handler = l }).client(t)
		id := c.get(false, "/")
		c.fillWindow(id, whole)
		c.awaitRead()
		close(l.begin)
		c.awaitWindow()
		if !whole {
			c.check(c.WriteData(id, true, nil))
		}
		close(answer)
		if got := c.outcome(id); got != "200" {
			t.Errorf("%q, want 200", got)
		}
	}
}

// A body whose end arrives while the engine opens its window reaches the origin whole.
func TestEndsDuringWindowUpdates(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := start(t, nil, nil)
		e.h.origin = pipedOrigin(func(r *http.Request) string {
			n, _ := io.Copy(io.Discard, r.Body)
			return fmt.Sprint(n)
		})
		c := e.piped(t)
		id := c.get(false, "/")
		c.awaitRead()
		for range 4 { // a quarter of the window
			c.check(c.WriteData(id, false, make([]byte, 16<<10)))
		}
		synctest.Wait() // the engine writes the updates, which the client does not read
		c.check(c.WriteData(id, true, []byte("end")))
		synctest.Wait()
		if got, want := c.outcome(id), fmt.Sprint("200 ", 64<<10+3); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		_ = c.conn.Close()
		e.h.origin.Close()
	})
}

// pipedOrigin returns an origin behind a pipe, which answers with the bodies that answer returns.
func pipedOrigin(answer answering) *http1.Origin {
	dial := harness.Origin(answer)
	return http1.NewOrigin(func() (net.Conn, error) { return dial(context.Background(), "", "") }, patience)
}

type answering func(*http.Request) (body string)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	body := a(r)
	return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A request does not reach the origin with the trailers of an earlier one, whose memory it reuses.
func TestTrailersOfEarlierRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := start(t, nil, nil)
		e.h.origin = pipedOrigin(func(r *http.Request) string {
			_, _ = io.Copy(io.Discard, r.Body)
			return fmt.Sprint(len(r.Trailer))
		})
		defer e.h.origin.Close()
		c := e.piped(t)
		for range 10 { // the race detector lets pools lose a quarter of what they hold
			for _, trailers := range []int{1, 0, 0} { // trailers take memory for another request
				id := c.get(false, "/")
				c.check(c.WriteData(id, trailers == 0, []byte("body")))
				if trailers > 0 {
					c.check(c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block("x-sum", "7"), EndStream: true, EndHeaders: true}))
				}
				if got, want := c.outcome(id), fmt.Sprint("200 ", trailers); got != want {
					t.Fatalf("with %d trailers: %q, want %q", trailers, got, want)
				}
				synctest.Wait() // the memory is free
			}
		}
		_ = c.conn.Close()
	})
}

const windowSize = 256 << 10 // of a stream

// fillWindow sends as much of a body as the stream's window allows.
func (c *client) fillWindow(id uint32, end bool) {
	c.t.Helper()
	for left := windowSize; left > 0; left -= 16 << 10 {
		c.check(c.WriteData(id, end && left == 16<<10, make([]byte, 16<<10)))
	}
}

// awaitRead waits until the engine has read all that was sent.
func (c *client) awaitRead() {
	c.t.Helper()
	c.check(c.WritePing(false, [8]byte{1}))
	c.await(func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
}

// awaitWindow waits until the connection's window opens by what fillWindow has sent.
func (c *client) awaitWindow() {
	c.t.Helper()
	c.await(func(f xhttp2.Frame) bool {
		w, ok := f.(*xhttp2.WindowUpdateFrame)
		return ok && w.StreamID == 0 && w.Increment == windowSize
	})
}

// await reads frames until ok.
func (c *client) await(ok func(xhttp2.Frame) bool) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		c.check(err)
		if ok(f) {
			return
		}
	}
}

// An origin cannot send more interim answers than the client reads, not even on several streams.
func TestInterimAnswersThatNobodyReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const most = 100
		var sent [2]int
		origins := 0
		h := &relay{origin: http1.NewOrigin(func() (net.Conn, error) {
			near, far := net.Pipe()
			n := &sent[origins]
			origins++
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(far))
				for err := error(nil); err == nil && *n < most; *n++ {
					_, err = fmt.Fprintf(far, "HTTP/1.1 103 Early Hints\r\nLink: %08000d\r\n\r\n", 0)
				}
				_ = far.Close()
			}()
			return near, nil
		}, patience)}
		c := start(t, nil, func(o *http1.Options) { o.Handler, o.MaxStreams = h, 2 }).piped(t)
		for range sent {
			c.get(true, "/")
			for answers := 0; answers < 2; {
				f, err := c.ReadFrame()
				c.check(err)
				if _, ok := f.(*xhttp2.MetaHeadersFrame); ok {
					answers++
				}
			}
		}
		synctest.Wait()
		if sent[0] == most || sent[1] == most {
			t.Errorf("the origin has sent %d interim answers of 8 KB, want fewer than %d each", sent, most)
		}
		_ = c.conn.Close()
	})
}
