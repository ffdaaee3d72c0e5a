package http2_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/pop/http2"
)

// Bodies of any size pass in both directions at once, also many on one connection.
func TestBodies(t *testing.T) {
	e := start(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}, nil)
	dial := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return e.connect(t), nil }}
	dial.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(dial.CloseIdleConnections)
	results := make(chan error)
	sizes := []int{0, 1, 4096, 16384, 16385, 70_000, 300_000, 3 << 20}
	for _, n := range sizes {
		go func() {
			body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
			resp, err := (&http.Client{Transport: dial}).Post("http://a.example/", "text/plain", struct{ io.Reader }{strings.NewReader(body)})
			if err != nil {
				results <- err
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err == nil && string(got) != body {
				err = fmt.Errorf("%d bytes come back, want the %d that were sent", len(got), n)
			}
			results <- err
		}()
	}
	for range sizes {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// No more is sent than the client has room for, on the stream and on the connection, and all of it when
// there is room.
func TestWindows(t *testing.T) {
	e := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100_000)) }, nil)
	c := e.client(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 10})
	one, two := c.get(true, "/"), c.get(true, "/refused")
	room := map[uint32]int{0: 65535, one: 10, two: 10}
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
}

// A client that has no room for its answer for too long loses it, and the origin is let go.
func TestClientsThatDoNotRead(t *testing.T) {
	free := make(chan struct{})
	e := start(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(free)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}, func(o *http2.Options) { o.BodyTimeout = 20 * time.Millisecond })
	c := e.client(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1})
	if got := c.outcome(c.get(true, "/")); got != "200 CANCEL" {
		t.Errorf("%q, want that the stream is reset", got)
	}
	<-free
}

// What the client sends is bounded by windows that open as the origin takes it. One that sends more is
// cut off; one that sends what nobody wants gets its connection's window back.
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

// Shutdown tells a client twice, serves what it has begun meanwhile, and ends the connection.
func TestShutdown(t *testing.T) {
	answer := make(chan struct{})
	e := start(t, func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		_, _ = io.WriteString(w, "ok")
	}, nil)
	c := e.client(t)
	first := c.get(true, "/")
	ended := make(chan error, 1)
	await := func(last uint32) {
		t.Helper()
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := f.(*xhttp2.PingFrame); ok && last == 0 {
				c.check(c.WritePing(true, f.Data))
				return
			}
			if f, ok := f.(*xhttp2.GoAwayFrame); ok && last > 0 {
				if f.LastStreamID != last || f.ErrCode != xhttp2.ErrCodeNo {
					t.Fatalf("GOAWAY %d %v, want %d", f.LastStreamID, f.ErrCode, last)
				}
				return
			}
		}
	}
	c.check(c.WritePing(false, [8]byte{1}))
	for pinged := false; !pinged; { // until the request is seen
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		_, pinged = f.(*xhttp2.PingFrame)
	}
	go func() { ended <- e.Shutdown(t.Context()) }()
	await(1<<31 - 1)
	second := c.get(true, "/") // was on its way
	await(0)
	await(second)
	c.get(true, "/ignored")
	close(answer)
	got := map[uint32]string{}
	for {
		f, err := c.ReadFrame()
		if err != nil {
			break
		}
		if f, ok := f.(*xhttp2.DataFrame); ok {
			got[f.StreamID] += string(f.Data())
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(map[uint32]string{first: "ok", second: "ok"}) {
		t.Errorf("answers by stream: %v", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Nothing is allocated per refused request.
func TestRefusalsAllocateNothing(t *testing.T) {
	e := start(t, nil, nil)
	c := e.client(t)
	get := func() {
		id := c.get(true, "/refused")
		for ended := false; !ended; {
			f, err := c.ReadFrame()
			c.check(err)
			data, ok := f.(*xhttp2.DataFrame)
			ended = ok && data.StreamID == id && data.StreamEnded()
		}
	}
	c.ReadMetaHeaders = nil
	c.SetReuseFrames()
	get()
	client := testing.AllocsPerRun(200, func() {
		c.buf.Reset()
		_ = c.block(":method", "GET", ":scheme", "http", ":authority", "a.example", ":path", "/refused")
	})
	if all := testing.AllocsPerRun(200, get); all > client+4 { // of the client's frames
		t.Errorf("%v allocations for a refused request, of which %v are the client's", all, client+4)
	}
}
