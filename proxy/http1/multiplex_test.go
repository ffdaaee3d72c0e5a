package http1_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http1"
)

// Requests and answers that HTTP/2 lacks, or carries in another way, pass as if the origin spoke HTTP/1.1.
func TestOriginsAreAlike(t *testing.T) {
	origin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/switch" && r.ProtoMajor == 1 && r.Header.Get("Upgrade") == "foo" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nhello")
				_ = conn.Close()
			}
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/sized" {
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprintf(w, "%s %s %q %s %v", r.Method, r.RequestURI, r.Host, body, r.Trailer)
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	const (
		hostless = "GET / HTTP/1.0\r\n\r\n"
		noHost   = "GET //a HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"
		upgrade  = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: foo\r\n\r\n"
		switches = "GET /switch HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n"
		trailers = "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
		sized    = "PUT /sized HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"
	)
	late := " map[X-Late:[2]]"
	for _, protocol := range []string{"http", "https", "both", "h2", "h2c"} {
		addr := serve(t, relay{http2Origin(startOrigin(t, protocol, origin))})
		for sends, want := range map[string]string{
			hostless: `200 GET / ""  map[] map[]`,
			noHost:   `200 GET //a ""  map[]` + late,
			upgrade:  `200 GET /a "a"  map[]` + late,
			switches: "101 hello map[]",
			trailers: `200 POST /a "a" abc map[X-Sum:[1]]` + late,
			sized:    `200 PUT /sized "a" a map[]` + late,
		} {
			if sends == trailers && protocol != "http" && protocol != "https" {
				want = strings.Replace(want, "X-Sum:[1]", "", 1) // Go's server drops them: see TestRequestTrailers
			}
			switch {
			case sends == switches && protocol[:2] == "h2":
				want = `200 GET /switch "a"  map[]` + late
				sends = strings.Replace(sends, "Upgrade\r\n", "Upgrade, close\r\n", 1)
			case sends == sized && strings.HasPrefix(protocol, "http"):
				want = strings.TrimSuffix(want, late) + " map[]" // such an answer has no trailers in HTTP/1.1
			}
			conn := dial(t, addr)
			_, _ = io.WriteString(conn, sends)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %q: %v", protocol, sends, err)
			}
			if resp.StatusCode == http.StatusSwitchingProtocols {
				resp.Body = io.NopCloser(in)
			}
			body, err := io.ReadAll(resp.Body)
			if got := fmt.Sprint(resp.StatusCode, " ", string(body), " ", resp.Trailer); got != want || err != nil {
				t.Errorf("%s: %q: got %s, %v; want %s", protocol, sends, got, err, want)
			}
		}
	}
}

// A frozen is an origin in a bubble whose connections are pipes. It may stop reading and writing while its connections
// stay open, like a process that is stopped or a network that drops everything.
type frozen struct {
	mu    sync.Mutex
	conns []*swallowing
	pings atomic.Int32

	early    bool                // answers at the end of the header, and accepts no body
	sized    bool                // answers have a Content-Length
	refuses  atomic.Int32        // this many requests
	trailers []hpack.HeaderField // of requests
}

// A swallowing connection drops all bytes in both directions once it is cut.
type swallowing struct {
	net.Conn
	cut atomic.Bool
}

func (c *swallowing) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *swallowing) Read(p []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(p); err != nil || !c.cut.Load() {
			return n, err
		}
	}
}

func (f *frozen) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.cut.Store(true)
	}
}

func (f *frozen) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// connect returns a connection that strict serves.
func (f *frozen) connect(...string) (net.Conn, error) {
	near, far := net.Pipe()
	c := &swallowing{Conn: near}
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.mu.Unlock()
	go f.strict(far)
	return c, nil
}

// strict serves HTTP/2 like grpc-go: it answers too many pings without data between them by closing the connection.
// Paths say how long the answer to a whole request takes.
func (f *frozen) strict(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	out := make(queue, 1000)
	go out.copyTo(conn)
	var mu sync.Mutex // guards the fields below
	framer := http2.NewFramer(out, in)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	strikes := 0
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	takes := map[uint32]time.Duration{} // by stream
	answer := func(id uint32) {
		if f.refuses.Add(-1) >= 0 {
			_ = framer.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			return
		}
		time.AfterFunc(takes[id], func() {
			mu.Lock()
			defer mu.Unlock()
			strikes = 0
			head.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			if f.sized {
				_ = encoder.WriteField(hpack.HeaderField{Name: "content-length", Value: "2"})
			}
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true})
			_ = framer.WriteData(id, true, []byte("ok"))
		})
	}
	var settings []http2.Setting
	if f.early {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	}
	_ = framer.WriteSettings(settings...)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		mu.Lock()
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			f.pings.Add(1)
			if strikes++; strikes > 2 {
				_ = framer.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
				mu.Unlock()
				return
			}
			_ = framer.WritePing(true, frame.Data)
		case *http2.MetaHeadersFrame:
			if path := frame.PseudoValue("path"); path != "" {
				takes[frame.StreamID], _ = time.ParseDuration(strings.TrimPrefix(path, "/"))
			} else {
				f.trailers = append(f.trailers, frame.RegularFields()...)
			}
			if frame.StreamEnded() || f.early {
				answer(frame.StreamID)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				answer(frame.StreamID)
			}
		}
		mu.Unlock()
	}
}

// A queue is a pipe that has room for many writes.
type queue chan []byte

func (q queue) Write(p []byte) (int, error) {
	q <- bytes.Clone(p)
	return len(p), nil
}

func (q queue) copyTo(conn net.Conn) {
	for {
		select {
		case p := <-q:
			if _, err := conn.Write(p); err != nil {
				return
			}
		case <-time.After(30 * time.Minute): // the test is over
			return
		}
	}
}

// ask sends a request through s, and returns the status, and how long the answer took.
func ask(s *http1.Server, request string) (status int, took time.Duration) {
	client, conn := net.Pipe()
	defer client.Close()
	go s.Accept(conn, http1.Start{Since: time.Now(), Read: []byte(request)})()
	start := time.Now()
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		return 0, time.Since(start)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, time.Since(start)
}

// requestTo returns a request with method for an answer that takes this long.
func requestTo(method string, takes time.Duration) string {
	r := method + " /" + takes.String() + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
	if method == "PUT" || method == "POST" {
		return r + "Content-Length: 4\r\n\r\nbody"
	}
	return r + "\r\n"
}

// inFrozen runs a test in front of a frozen origin.
func inFrozen(t *testing.T, test func(t *testing.T, f *frozen, s *http1.Server)) {
	bubble.Test(t, func(t *testing.T) {
		f := new(frozen)
		o := http1.NewHTTP2Origin("http", f.connect, time.Hour)
		test(t, f, http1.NewServer(options(relay{o})))
		o.Close()
		for _, c := range f.conns {
			_ = c.Close()
		}
		time.Sleep(time.Hour) // until all goroutines have returned
	})
}

// When an HTTP/2 connection is dead, requests that may be repeated are answered on another one within 5 s, and all
// others fail. Later requests do not notice.
func TestDeadConnections(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		if status, _ := ask(s, requestTo("GET", 0)); status != 200 {
			t.Fatalf("status %d before the cut", status)
		}
		f.cut()
		var wg sync.WaitGroup
		for _, method := range []string{"GET", "PUT", "DELETE", "POST", "incomplete PUT"} {
			wg.Go(func() {
				want := 200
				request := requestTo(strings.TrimPrefix(method, "incomplete "), 0)
				switch method {
				case "POST":
					want = 502
				case "incomplete PUT": // its client sends no more
					want, request = 502, strings.TrimSuffix(request, "dy")
					request = strings.Replace(request, "Content-Length: 4", "Transfer-Encoding: chunked", 1)
				}
				if status, took := ask(s, request); status != want || took > 5*time.Second {
					t.Errorf("%s: status %d after %v, want %d within 5 s", method, status, took, want)
				}
			})
		}
		wg.Wait()
		for _, method := range []string{"GET", "POST"} {
			if status, took := ask(s, requestTo(method, 0)); status != 200 || took > 0 {
				t.Errorf("later %s: status %d after %v", method, status, took)
			}
		}
		if n := f.len(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

// A request that the origin has not processed is sent once more, whatever its method, although its body was sent.
func TestRefusedRequestsAreRepeated(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		for _, method := range []string{"PUT", "POST"} {
			for n, want := range []int{200, 200, 502} {
				f.refuses.Store(int32(n))
				if status, _ := ask(s, requestTo(method, 0)); status != want {
					t.Errorf("%s, refused %d times: status %d, want %d", method, n, status, want)
				}
			}
		}
	})
}

// An answer arrives at once although the origin does not accept the request's body, however much of the body was read
// with the header. The next request does not wait until it does.
func TestAnswersBeforeBodies(t *testing.T) {
	for _, size := range []int{1, 4 << 10, 30 << 10, 100 << 10, -1, -4 << 10} {
		inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
			f.early, f.sized = true, size < 0
			size = max(size, -size)
			_, _ = ask(s, requestTo("GET", 0)) // then the origin's settings are known
			request := fmt.Sprintf("POST /0s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
			for range 3 {
				if status, took := ask(s, request); status != 200 || took > 0 {
					t.Errorf("body of %d bytes, sized answer %v: status %d after %v, want 200 at once", size, f.sized, status, took)
				}
			}
		})
	}
}

// Answers that take minutes arrive although the origin closes connections that are pinged often: each is pinged once at
// most.
func TestSilentConnectionsAreSeldomPinged(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		var wg sync.WaitGroup
		for range 20 {
			for range 10 {
				wg.Go(func() {
					if status, took := ask(s, requestTo("POST", 10*time.Minute)); status != 200 {
						t.Errorf("status %d after %v", status, took)
					}
				})
			}
			time.Sleep(3 * time.Second)
		}
		wg.Wait()
		if pings, n := f.pings.Load(), f.len(); int(pings) > n || n > 21 {
			t.Errorf("%d pings on %d connections, want at most one on each of at most 21", pings, n)
		}
	})
}

// A connection on which other answers arrive is not pinged, however long one of them takes.
func TestBusyConnectionsAreNotPinged(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if status, _ := ask(s, requestTo("GET", time.Minute)); status != 200 {
				t.Errorf("status %d", status)
			}
		})
		for range 60 {
			time.Sleep(time.Second)
			ask(s, requestTo("GET", 0))
		}
		wg.Wait()
		if pings, n := f.pings.Load(), f.len(); pings > 0 || n != 1 {
			t.Errorf("%d pings on %d connections, want none on one", pings, n)
		}
	})
}

// Trailers of a request that it does not announce reach an HTTP/2 origin.
func TestRequestTrailers(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		status, _ := ask(s, "POST /1s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\nX-sum: 2\r\n\r\n")
		if got, want := fmt.Sprint(status, f.trailers), `200 [header field "x-sum" = "1" header field "x-sum" = "2"]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Requests that arrive together share a new connection.
func TestRequestsShareAConnection(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		for range 2 {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if status, _ := ask(s, requestTo("GET", time.Second)); status != 200 {
						t.Errorf("status %d", status)
					}
				})
			}
			wg.Wait()
		}
		if n := f.len(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// An origin may stop speaking HTTP/2, and begin again. At most one request notices.
func TestOriginChangesItsProtocol(t *testing.T) {
	origin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	_, addr1 := startOrigin(t, "https", origin)
	_, addr2 := startOrigin(t, "h2", origin)
	var addr atomic.Value
	var opened sync.Map
	o := http1.NewHTTP2Origin("https", func(protocols ...string) (net.Conn, error) {
		conn, err := tls.Dial("tcp", addr.Load().(string), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err == nil {
			opened.Store(conn, true)
		}
		return conn, err
	}, patience)
	t.Cleanup(o.Close)
	front := serve(t, relay{o})
	for _, phase := range []struct{ addr, want string }{{addr2, "HTTP/2.0"}, {addr1, "HTTP/1.1"}, {addr2, "HTTP/2.0"}} {
		addr.Store(phase.addr)
		opened.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		failed := 0
		for range 3 {
			resp, err := http.Get("http://" + front)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusBadGateway {
				failed++
			} else if string(body) != phase.want {
				t.Errorf("got %q, want %s", body, phase.want)
			}
		}
		if failed > 1 {
			t.Errorf("%s: %d of 3 requests failed", phase.want, failed)
		}
	}
}
