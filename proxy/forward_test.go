package proxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
)

func TestRequestsArriveAsSent(t *testing.T) {
	var mu sync.Mutex // packets order nothing
	var got struct {
		method, host, uri string
		header            http.Header
		body              string
	}
	url := front(t, noRules, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got.method, got.host, got.uri, got.header, got.body = r.Method, r.Host, r.RequestURI, r.Header, string(body)
		w.Header().Set("X-Answer", "yes")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	}, nil)
	r := newRequest(t, "PUT", url+"/a%2Fb//c/../d?x=1;y=%zz&z", strings.NewReader("hello"),
		"X-Custom", "1", "X-Custom", "2", "Connection", "X-Private, Keep-Alive", "X-Private", "hop", "Keep-Alive", "timeout=5",
		"TE", "trailers", "Proxy-Authorization", "Basic eA==", "Accept-Encoding", "br", "User-Agent", "")
	r.Host = "app.example.com:8443"
	if byHTTP2 || byHTTP3 {
		for _, name := range []string{"Connection", "X-Private", "Keep-Alive"} {
			r.Header.Del(name) // they are invalid there
		}
	}
	resp, body := do(t, client(t), r)
	mu.Lock()
	defer mu.Unlock()
	if got.method != "PUT" || got.host != "app.example.com:8443" || got.uri != "/a%2Fb//c/../d?x=1;y=%zz&z" || got.body != "hello" {
		t.Errorf("the origin got %s %s %s %q", got.method, got.host, got.uri, got.body)
	}
	if diff := cmp.Diff([]string{"1", "2"}, got.header["X-Custom"]); diff != "" {
		t.Errorf("X-Custom (-want +got):\n%s", diff)
	}
	for _, name := range []string{"X-Private", "Keep-Alive", "Proxy-Authorization", "Connection", "User-Agent"} {
		if v, ok := got.header[name]; ok {
			t.Errorf("the origin got %s: %q, which is for the next hop only, or was not sent", name, v)
		}
	}
	if te := got.header.Get("Te"); te != "trailers" {
		t.Errorf("TE %q, want trailers", te)
	}
	if ae := got.header.Get("Accept-Encoding"); ae != "br" {
		t.Errorf("Accept-Encoding %q, want br", ae)
	}
	if resp.StatusCode != http.StatusTeapot || body != "short and stout" || resp.Header.Get("X-Answer") != "yes" || resp.Header.Get("X-Hop") != "" {
		t.Errorf("the client got %d %q %v", resp.StatusCode, body, resp.Header)
	}
}

// An answer that the origin has compressed without being asked is passed on
// unchanged, and the node does not ask for compression.
func TestCompressedAnswersPassUntouched(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "short and stout")
	_ = z.Close()
	url := front(t, noRules, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}, nil)
	resp, body := do(t, client(t), newRequest(t, "GET", url, nil))
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.ContentLength != int64(packed.Len()) || body != packed.String() {
		t.Errorf("the client got %d bytes, %q, %v", resp.ContentLength, body, resp.Header)
	}
	if asked := resp.Header.Get("X-Asked"); asked != "" {
		t.Errorf("the origin is asked for %q", asked)
	}
}

func TestOriginByHost(t *testing.T) {
	named := func(name string) *httptest.Server {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	}
	a, b := named("a"), named("b")
	p, _ := newProxy(t, noRules, a.URL, func(o *proxy.Options) {
		origin, err := proxy.NewOrigin(b.URL, proxy.OriginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Origins.ByHost = map[string]*proxy.Origin{"b.example.com": origin}
	})
	url := serveProxy(t, p)
	for host, want := range map[string]string{"a.example.com": "a", "b.example.com": "b", "B.Example.com.:443": "b"} {
		r := newRequest(t, "GET", url, nil)
		r.Host = host
		if _, got := do(t, client(t), r); got != want {
			t.Errorf("%s is answered by %q, want %q", host, got, want)
		}
	}
	p, _ = newProxy(t, noRules, a.URL, func(o *proxy.Options) {
		o.Origins = proxy.Origins{ByHost: map[string]*proxy.Origin{"a.example.com": o.Origins.Default}}
	})
	if resp, _ := do(t, client(t), newRequest(t, "GET", serveProxy(t, p), nil)); resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a host without an origin: %d, want 421", resp.StatusCode)
	}
}

func TestNewOriginRefuses(t *testing.T) {
	for _, text := range []string{"", "example.com", "127.0.0.1:80", "ftp://example.com", "http://", "http://:80", "http://example.com/app", "http://user@example.com", "http://example.com?x", "http://exa mple", "http://127.0.0.1:0", "http://127.0.0.1:65536", "https://origin:270100"} {
		if o, err := proxy.NewOrigin(text, proxy.OriginOptions{}); err == nil {
			t.Errorf("NewOrigin(%q) = %v, want an error", text, o)
		}
	}
}

// Both bodies stream: each side sees a part before the next part is sent.
func TestStreaming(t *testing.T) {
	url := frontWithin(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "echo %s\n", lines.Text())
			_ = http.NewResponseController(w).Flush()
		}
	})
	requestBody, send := io.Pipe()
	go func() { _, _ = io.WriteString(send, "one\n") }()
	resp, err := client(t).Do(newRequest(t, "POST", url, requestBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for _, want := range []string{"one", "two", "three"} {
		got, err := answers.ReadString('\n')
		if err != nil || got != "echo "+want+"\n" {
			t.Fatalf("answer %q, %v, want %q", got, err, "echo "+want)
		}
		if next := map[string]string{"one": "two\n", "two": "three\n"}[want]; next != "" {
			go func() { _, _ = io.WriteString(send, next) }()
		}
	}
	_ = send.Close()
}

func TestTrailers(t *testing.T) {
	url := front(t, noRules, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%s %s", body, r.Trailer.Get("X-Check"))
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	}, nil)
	r := newRequest(t, "POST", url, struct{ io.Reader }{strings.NewReader("body")})
	r.Trailer = http.Header{"X-Check": {"7"}}
	resp, body := do(t, client(t), r)
	if body != "body 7" || resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "1" {
		t.Errorf("answer %q with trailers %v", body, resp.Trailer)
	}
}

func TestWebSocket(t *testing.T) {
	url := frontWithin(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			_ = conn.Write(r.Context(), kind, append([]byte("echo "), message...))
		}
	})
	conn, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	for _, message := range []string{"one", strings.Repeat("x", 30000)} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(t.Context()); err != nil || string(got) != "echo "+message {
			t.Fatalf("%v, %d bytes", err, len(got))
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

func TestEarlyHints(t *testing.T) {
	url := front(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 9, period: 7d}]}]", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	}, func(o *proxy.Options) { o.NodeHeader, o.NodeName = "X-Edge-Node", "n1" })
	var hints []int
	r := newRequest(t, "GET", url, nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints = append(hints, code); return nil },
	}))
	resp, _ := do(t, client(t), r)
	if !slices.Equal(hints, []int{103}) || resp.StatusCode != http.StatusOK {
		t.Errorf("interim answers %v, then %d", hints, resp.StatusCode)
	}
	if resp.Header.Get("X-Edge-Node") != "n1" || resp.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("after an interim answer the final one has %v", resp.Header)
	}
}

func TestExpectContinue(t *testing.T) {
	url := front(t, noRules, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, len(body))
	}, nil)
	tr := &http.Transport{ExpectContinueTimeout: time.Minute} // waits for 100 Continue
	defer tr.CloseIdleConnections()
	_, body := do(t, &http.Client{Transport: tr}, newRequest(t, "POST", url, bytes.NewReader(make([]byte, 1<<20)), "Expect", "100-continue"))
	if body != "1048576" {
		t.Errorf("the origin read %s bytes, want 1048576", body)
	}
}

func TestMethodsThatNodesAnswer(t *testing.T) {
	p, _ := newProxy(t, noRules, "http://127.0.0.1:1", nil)
	for _, target := range []string{"CONNECT example.com:443", "TRACE /"} {
		conn := dialRaw(t, serveProxy(t, p))
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: example.com\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v, %v; want 405", target, resp, err)
		}
	}
}

// An answer that the node gives in place of the origin is not counted, whatever the rule counts.
func TestFailuresOfTheOrigin(t *testing.T) {
	const rules = "rules: [{id: all, count: {statuses: [502, 504, 499, 408, 400]}, characteristics: [ip], limits: [{threshold: 1, period: 7d}]}]"
	stuck := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	garbled := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: a\x01b\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
		}
	}))
	for _, tt := range []struct {
		name, origin string
		timeout      time.Duration // only for the origin that does not answer: the others must
		want         int
		text         string
	}{
		{"a dead origin", "http://127.0.0.1:1", 0, http.StatusBadGateway, "the origin cannot be reached\n"},
		{"an origin that does not answer", stuck.URL, 10 * time.Millisecond, http.StatusGatewayTimeout, "the origin did not respond in time\n"},
		{"an origin with an invalid answer", garbled.URL, 0, http.StatusBadGateway, "the origin's response is invalid: malformed header field\n"},
	} {
		reg := prometheus.NewPedanticRegistry()
		p, _ := newProxy(t, rules, tt.origin, func(o *proxy.Options) {
			o.Registerer = reg
			var err error
			if o.Origins.Default, err = proxy.NewOrigin(tt.origin, proxy.OriginOptions{Timeout: tt.timeout}); err != nil {
				t.Fatal(err)
			}
		})
		url := serveProxy(t, p)
		for range 10 {
			if resp, text := do(t, client(t), newRequest(t, "GET", url, nil)); resp.StatusCode != tt.want || text != tt.text {
				t.Fatalf("%s: %d %q, want %d %q", tt.name, resp.StatusCode, text, tt.want, tt.text)
			}
		}
		if got := sum(t, reg, "edge_origin_failures_total"); got != 10 {
			t.Errorf("%s: %v failures are counted, want 10", tt.name, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	front(t, noRules, ok, func(o *proxy.Options) { o.Registerer = reg })
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestAccessLog(t *testing.T) {
	p, log := newProxy(t, noRules, serve(t, http.HandlerFunc(ok)).URL, func(o *proxy.Options) { o.AccessLog = o.Logger })
	do(t, client(t), newRequest(t, "GET", serveProxy(t, p)+"/a?b", nil))
	harness.Until(t, "the access log has the request", patience, time.Millisecond, func() bool { return strings.Contains(log.String(), "uri=") })
	proto := "proto=HTTP/1.1"
	if byHTTP2 {
		proto = "proto=HTTP/2.0"
	}
	if byHTTP3 {
		proto = "proto=HTTP/3.0"
	}
	for _, want := range []string{"client=127.0.0.1", "method=GET", "uri=/a?b", proto, "status=200", "bytes=2", "verdict=passed"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the access log has no %s: %s", want, log)
		}
	}
}

// A client that does not read its answer is disconnected, and the origin is released. This cannot
// run in fake time, because net/http waits for a lock.
func TestUnreadAnswer(t *testing.T) {
	for name, length := range map[string]string{"of a known length": "1000000000000", "without end": ""} {
		t.Run(name, func(t *testing.T) {
			free := make(chan struct{})
			url := frontWithin(t, 20*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
				defer close(free)
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				for {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			})
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			<-free
		})
	}
}

// An HTTP/2 origin may not send much more of an answer than a slow client accepts.
func TestWindowOfHTTP2Origins(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p, _ := newProxy(t, noRules, "h2c://"+ln.Addr().String(), nil)
	done, at := make(chan struct{}), serveProxy(t, p)
	go func() {
		defer close(done)
		_, _ = client(t).Get(at)
	}()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
	frame, errFrame := http2.NewFramer(nil, conn).ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if err != nil || errFrame != nil || !ok {
		t.Fatal(err, errFrame, frame)
	}
	if window, ok := settings.Value(http2.SettingInitialWindowSize); !ok || window > 256<<10 {
		t.Errorf("the window of a stream is %d bytes", window)
	}
	_ = conn.Close()
	<-done
}

// failing fails for /fail, without reading the body.
type failing struct{ http.RoundTripper }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/fail" {
		return nil, errors.New("failed")
	}
	return f.RoundTripper.RoundTrip(r)
}

// A request whose body the origin did not read does not harm the next one.
func TestPipelinedRequestsAfterAFailure(t *testing.T) {
	back := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	tr := client(t).Transport
	p, _ := newProxy(t, noRules, back.URL, func(o *proxy.Options) {
		o.Origins.Default, _ = proxy.NewOrigin(back.URL, proxy.OriginOptions{Dial: harness.Origin(failing{tr})})
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(serveProxy(t, p), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const request = "POST /%s HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n%s\r\nbody"
	_, _ = fmt.Fprintf(conn, request+request+request, "fail", "", "", "", "", "Connection: close\r\n")
	if answers, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(answers, []byte("HTTP/1.1 502 ")) {
		t.Errorf("%q, %v", answers, err)
	}
}
