package http2_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// Bodies of any size pass in both directions at the same time, even many on one connection, after heads of any
// size, with and without a Content-Length.
func TestBodies(t *testing.T) {
	e := start(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}, nil)
	dial := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return e.connect(t), nil }}
	dial.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(dial.CloseIdleConnections)
	results := make(chan error)
	sizes := []int{0, 1, 4096, 16384, 16385, 70_000, 300_000, 1_100_000}
	for i := range 4 * len(sizes) {
		go func() {
			n := sizes[i/4]
			body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
			r, err := http.NewRequest("POST", "http://a.example/", strings.NewReader(body))
			if err != nil {
				results <- err
				return
			}
			if i%2 == 0 {
				r.ContentLength = -1
			}
			r.Header.Set("X-Long", strings.Repeat("x", 3000*(i/2%2)))
			resp, err := dial.RoundTrip(r)
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
	for range 4 * len(sizes) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// The memory in which bodies wait for their origin is reused for the next ones.
func TestBodiesThatWait(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	back.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(back.Close)
	arrived := make(chan struct{})
	e := start(t, nil, nil)
	e.h.origin = http1.NewOrigin(func() (net.Conn, error) {
		<-arrived
		return net.Dial("tcp", back.Listener.Addr().String())
	}, patience)
	c := e.client(t)
	part := make([]byte, 10_000)
	upload := func() {
		id := c.get(false, "/")
		for i := range 20 {
			c.check(c.WriteData(id, i == 19, part))
		}
		c.check(c.WritePing(false, [8]byte{1}))
		for pinged := false; !pinged; {
			f, err := c.ReadFrame()
			c.check(err)
			pinged = f.Header().Type == xhttp2.FramePing
		}
		arrived <- struct{}{}
		if got := c.outcome(id); got != "200" {
			t.Fatalf("%q, want 200", got)
		}
	}
	var before, after runtime.MemStats
	upload()
	runtime.ReadMemStats(&before)
	const n = 50
	for range n {
		upload()
	}
	runtime.ReadMemStats(&after)
	// The race detector lets pools lose a quarter of what they hold.
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 3*20*uint64(len(part)) {
		t.Errorf("%d bytes are allocated for each body of %d", each, 20*len(part))
	}
}

// A request whose body the origin does not accept fails, whether the origin has read its head or not.
func TestOriginsThatDoNotRead(t *testing.T) {
	for _, reads := range []bool{false, true} {
		e := start(t, nil, nil)
		e.h.origin = http1.NewOrigin(func() (net.Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			if reads {
				go func() { _, _ = http.ReadRequest(bufio.NewReader(far)) }()
			}
			return near, nil
		}, 100*time.Millisecond)
		c := e.client(t)
		id := c.get(false, "/")
		c.check(c.WriteData(id, false, make([]byte, 10_000)))
		if got := c.outcome(id); !strings.HasPrefix(got, "502") {
			t.Errorf("an origin that reads the head (%v) but not the body: %q, want 502", reads, got)
		}
	}
}

// gRPC calls reach an origin that speaks HTTP/2: messages go back and forth while both bodies are open,
// in many calls at once and in large sizes, and the status comes in trailers.
func TestGRPC(t *testing.T) {
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		if r.Header.Get("Te") != "trailers" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "13")
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		message := make([]byte, 100_000)
		for {
			n, err := r.Body.Read(message)
			_, _ = w.Write(message[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}))
	cleartext := new(http.Protocols)
	cleartext.SetUnencryptedHTTP2(true)
	back.Config.Protocols = cleartext
	back.Start()
	t.Cleanup(back.Close)
	e := start(t, nil, nil)
	e.h.origin = http1.NewHTTP2Origin("http", func(...string) (net.Conn, error) { return net.Dial("tcp", back.Listener.Addr().String()) }, patience)
	t.Cleanup(e.h.origin.Close)
	in := &http.Transport{Protocols: cleartext, DialContext: func(context.Context, string, string) (net.Conn, error) { return e.connect(t), nil }}
	t.Cleanup(in.CloseIdleConnections)
	results := make(chan error)
	call := func(n int) error {
		body, messages := io.Pipe()
		defer messages.Close()
		r, err := http.NewRequest("POST", "http://a.example/service/method", body)
		if err != nil {
			return err
		}
		r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
		resp, err := in.RoundTrip(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("%d bytes: %s %s", n, resp.Status, text)
		}
		for i := range 5 { // each answer is read before the next message is sent
			sent := bytes.Repeat([]byte{byte('a' + i)}, n)
			go func() { _, _ = messages.Write(sent) }()
			got := make([]byte, n)
			if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, sent) {
				return fmt.Errorf("message %d of %d bytes: %v", i, n, err)
			}
		}
		_ = messages.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.Trailer.Get("Grpc-Status") != "0" {
			return fmt.Errorf("the end: %d bytes, %v, trailers %v", len(rest), err, resp.Trailer)
		}
		return nil
	}
	sizes := []int{1, 5, 16384, 70_000, 300_000, 1, 5, 1_100_000}
	for _, n := range sizes {
		go func() { results <- call(n) }()
	}
	for range sizes {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// Bodies of refused requests that are in transit cost a client nothing, even if it sends a hundred at once.
func TestBodiesOfRefusedRequests(t *testing.T) {
	e := start(t, nil, nil)
	c := e.client(t)
	go func() { // none of this waits for the answers
		for range 100 {
			c.get(false, "/refused")
		}
		part := make([]byte, 16384)
		for id := uint32(1); id < 200; id += 2 {
			for range 16 {
				_ = c.WriteData(id, false, part)
			}
		}
		c.get(true, "/refused/last")
	}()
	if got := c.outcome(201); got != "429 slow down" {
		t.Errorf("the next request: %q, want 429", got)
	}
}

// A connection ends when it has been idle for IdleTimeout, whether its last request was refused or relayed. A request that
// takes longer is answered.
func TestIdleTimeout(t *testing.T) {
	const timeout = 10 * time.Second
	for path, takes := range map[string]time.Duration{"/refused": 0, "/": time.Second, "/slow": 25 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			e := start(t, nil, func(o *http1.Options) { o.IdleTimeout = timeout })
			e.h.origin = pipedOrigin(func(*http.Request) string {
				time.Sleep(takes)
				return "late"
			})
			defer e.h.origin.Close()
			c := e.piped(t)
			if got := c.outcome(c.get(true, path)); takes > 0 && got != "200 late" {
				t.Errorf("%s: %q, want 200 late", path, got)
			}
			answered := time.Now()
			_ = c.conn.SetReadDeadline(answered.Add(time.Hour))
			for err := error(nil); err == nil; {
				_, err = c.ReadFrame()
			}
			if idle := time.Since(answered); idle != timeout {
				t.Errorf("%s: the connection ends after %v, want %v", path, idle, timeout)
			}
			_ = c.conn.Close()
		})
	}
}

// A connection that waits for a request holds no buffers that a large header has needed.
func TestIdleConnectionsHoldLittle(t *testing.T) {
	e := start(t, nil, func(o *http1.Options) { o.MaxHeaderBytes = 128 << 10 })
	const conns = 100
	var frames bytes.Buffer
	frames.WriteString(xhttp2.ClientPreface)
	fr := xhttp2.NewFramer(&frames, nil)
	_ = fr.WriteSettings()
	block := []byte("\x82\x86\x04\x08/refused\x41\x01a")
	for range 6 { // 60 KB in a field and 60 KB in cookies, neither in the table
		block = append(append(block, "\x00\x01x\x7f\x91\x4d"...), bytes.Repeat([]byte("y"), 10_000)...)
		block = append(append(block, "\x0f\x11\x7f\x91\x4d"...), bytes.Repeat([]byte("y"), 10_000)...)
	}
	kind := fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:16384], EndStream: true})
	for block = block[16384:]; kind == nil && len(block) > 0; {
		n := min(len(block), 16384)
		kind = fr.WriteContinuation(1, n == len(block), block[:n])
		block = block[n:]
	}
	heap := func() int {
		var m runtime.MemStats
		for range 3 { // pools keep their contents for two garbage collections
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for range conns {
		conn := e.connect(t)
		go func() { _, _ = conn.Write(frames.Bytes()) }()
		var got []byte
		for !bytes.HasSuffix(got, []byte("slow down\n")) {
			part := make([]byte, 100)
			n, err := conn.Read(part)
			if err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			got = append(got, part[:n]...)
		}
	}
	// The server frees its buffers after it has answered.
	each := (heap() - before) / conns
	for deadline := time.Now().Add(patience); each > 16<<10 && time.Now().Before(deadline); {
		each = (heap() - before) / conns
	}
	if each > 16<<10 {
		t.Errorf("a connection holds %d bytes", each)
	}
}

// Shutdown sends GOAWAY twice, serves the requests that arrive before the second, and ends the connection.
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
	second := c.get(true, "/") // was in transit
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

// Shutdown does not wait for a client that has no requests and answers at once.
func TestShutdownOfIdleConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := start(t, nil, nil)
		c := e.piped(t)
		c.outcome(c.get(true, "/refused"))
		synctest.Wait() // the engine waits for the next request
		begun, took := time.Now(), make(chan time.Duration)
		go func() {
			_ = e.Shutdown(t.Context())
			took <- time.Since(begun)
		}()
		c.await(func(f xhttp2.Frame) bool {
			ping, ok := f.(*xhttp2.PingFrame)
			if ok {
				c.check(c.WritePing(true, ping.Data))
			}
			return ok
		})
		c.await(func(f xhttp2.Frame) bool {
			last, ok := f.(*xhttp2.GoAwayFrame)
			return ok && last.LastStreamID == 1
		})
		if got := <-took; got > 0 {
			t.Errorf("Shutdown took %v, want no time", got)
		}
	})
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

// A new connection is answered if its first request comes within conns.RequestWait after Shutdown.
// Otherwise its client is told that no request was read.
func TestShutdownWithNewConnections(t *testing.T) {
	for _, asks := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			e := start(t, nil, nil)
			near, far := net.Pipe()
			defer near.Close()
			go e.Accept(far, http1.Start{Since: time.Now()})()
			ended := make(chan error, 1)
			go func() { ended <- e.Shutdown(t.Context()) }()
			frames := make(chan string, 1)
			go func() { frames <- kinds(near) }()
			c := newClient(t, near)
			time.Sleep(conns.RequestWait - time.Millisecond)
			want := "SETTINGS WINDOW_UPDATE SETTINGS GOAWAY(0)"
			if asks {
				c.get(true, "/refused")
				want = "SETTINGS WINDOW_UPDATE SETTINGS GOAWAY(2147483647) HEADERS DATA GOAWAY(1)"
			}
			if got := <-frames; got != want {
				t.Errorf("the client gets %s, want %s", got, want)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// kinds reads the frames of a connection until its end, and returns their types.
func kinds(conn net.Conn) string {
	frames := xhttp2.NewFramer(io.Discard, conn)
	var all []string
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return strings.Join(all, " ")
		}
		kind := f.Header().Type.String()
		if f, ok := f.(*xhttp2.GoAwayFrame); ok {
			kind += fmt.Sprintf("(%d)", f.LastStreamID)
		}
		all = append(all, kind)
	}
}
