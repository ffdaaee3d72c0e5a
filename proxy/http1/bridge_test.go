package http1_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
)

// startBridged serves clients with an engine in front of an origin that does not speak plain
// HTTP/1.1, and returns its address.
func startBridged(t *testing.T, protocol string, origin http.Handler) string {
	t.Helper()
	o := http2Origin(startOrigin(t, protocol, origin))
	t.Cleanup(o.Close)
	return serve(t, relay{o})
}

// startOrigin serves origin over protocol: h2c, h2 (TLS, only HTTP/2), both (TLS, HTTP/1.1 and HTTP/2), https or http
// (only HTTP/1.1).
func startOrigin(t *testing.T, protocol string, origin http.Handler) (string, string) {
	t.Helper()
	back := httptest.NewUnstartedServer(origin)
	t.Cleanup(back.Close)
	back.EnableHTTP2 = protocol == "h2" || protocol == "both"
	switch protocol {
	case "h2c":
		back.Config.Protocols = new(http.Protocols)
		back.Config.Protocols.SetUnencryptedHTTP2(true)
		back.Start()
	case "http":
		back.Start()
	case "h2":
		back.Config.Protocols = new(http.Protocols)
		back.Config.Protocols.SetHTTP2(true)
		back.StartTLS()
	case "both":
		back.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
		back.StartTLS()
	default:
		back.StartTLS()
	}
	return protocol, back.Listener.Addr().String()
}

// http2Origin returns the origin at addr.
func http2Origin(protocol, addr string) *http1.Origin {
	switch protocol {
	case "http":
		return http1.NewOrigin(dialer(addr), patience)
	case "h2c":
		return http1.NewHTTP2Origin("http", func(...string) (net.Conn, error) { return net.Dial("tcp", addr) }, patience)
	}
	return http1.NewHTTP2Origin("https", func(protocols ...string) (net.Conn, error) {
		return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	}, patience)
}

// bridges runs a test in front of each kind of origin.
func bridges(t *testing.T, origin http.HandlerFunc, test func(t *testing.T, addr string)) {
	for _, protocol := range []string{"h2c", "h2", "both", "https"} {
		t.Run(protocol, func(t *testing.T) { test(t, startBridged(t, protocol, origin)) })
	}
}

// Requests and answers pass through a bridge unchanged, and do so again when the connection is
// reused.
func TestBridge(t *testing.T) {
	bridges(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("Trailer", "X-Announced")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s %s %d %s %q", r.Method, r.RequestURI, r.Host, len(body), r.Trailer.Get("X-Sum"), r.Header["User-Agent"])
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Not", "2")
	}, func(t *testing.T, addr string) {
		hints := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
			hints++
			return nil
		}}
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for range 2 {
			for _, n := range []int{0, 5, 100_000} {
				body := io.MultiReader(strings.NewReader(strings.Repeat("x", n))) // chunked
				r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", "http://"+addr+"/hints?%41//b", body)
				if err != nil {
					t.Fatal(err)
				}
				r.Trailer, r.Host, r.Header["User-Agent"] = http.Header{"X-Sum": {"7"}}, "a.example", nil
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := fmt.Sprintf("POST /hints?%%41//b a.example %d 7 []", n); string(got) != want || err != nil {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
				if resp.Trailer.Get("X-Announced") != "1" || resp.Trailer.Get("X-Not") != "2" {
					t.Errorf("trailers %v", resp.Trailer)
				}
			}
		}
		if hints != 6 {
			t.Errorf("%d interim answers, want 6", hints)
		}
	})
}

// A client that does not read interim answers does not delay the other requests of an HTTP/2 connection.
func TestBridgeUnreadHints(t *testing.T) {
	ended := make(chan struct{})
	addr := startBridged(t, "h2c", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hints" {
			return
		}
		defer close(ended)
		w.Header().Set("Link", strings.Repeat("x", 10_000))
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
		}
	}))
	conn := dial(t, addr)
	_, _ = io.WriteString(conn, "GET /hints HTTP/1.1\r\nHost: a\r\n\r\n")
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	for {
		resp, err := client.Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		select {
		case <-ended:
			return
		default:
		}
	}
}

// A streamed answer passes in the parts that the origin flushes, and the origin notices when the
// client disconnects.
func TestBridgeStreams(t *testing.T) {
	gone := make(chan struct{}, 1)
	bridges(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}, func(t *testing.T, addr string) {
		conn := dial(t, addr)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(io.LimitReader(resp.Body, 3)); string(got) != "one" {
			t.Errorf("%q, %v", got, err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		awaitClosed(t, "the origin notices that the client has gone", gone)
	})
}

// Answers that come before the request's end, or without a body, end where they should.
func TestBridgeFrames(t *testing.T) {
	bridges(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		}
	}, func(t *testing.T, addr string) {
		for _, test := range []struct {
			sends  string
			status int
			body   string
		}{
			{"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc", 413, "too large\n"},
			{"GET /204 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 204, ""},
			{"GET /304 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 304, ""},
			{"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, ""},
			{"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, "abc"},
		} {
			conn := dial(t, addr)
			_, _ = io.WriteString(conn, test.sends)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, &http.Request{Method: strings.Fields(test.sends)[0]})
			if err != nil {
				t.Fatalf("%.20q: %v", test.sends, err)
			}
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != test.status || string(body) != test.body {
				t.Errorf("%.20q: %d %q", test.sends, resp.StatusCode, body)
			}
			if test.status == 413 {
				continue
			}
			if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("after %.20q: %v, %v", test.sends, resp, err)
			}
		}
	})
}

// A connection may switch to another protocol if the origin speaks HTTP/1.1.
func TestBridgeUpgrade(t *testing.T) {
	addr := startBridged(t, "https", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst")
		_, _ = io.Copy(conn, buf)
	}))
	conn := dial(t, addr)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n+early")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "echo" {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(conn, "+late")
	got := make([]byte, len("first+early+late"))
	if _, err := io.ReadFull(in, got); string(got) != "first+early+late" {
		t.Errorf("%q, %v", got, err)
	}
}

// Errors of the origin are the same as without a bridge.
func TestBridgeFails(t *testing.T) {
	o := http2Origin("h2c", "127.0.0.1:1")
	resp, err := http.Get("http://" + serve(t, relay{o}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 502 || !strings.Contains(string(body), "connection refused") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

// A target reaches the origin as it was received.
func TestBridgeTargets(t *testing.T) {
	bridges(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Host, r.RequestURI)
	}, func(t *testing.T, addr string) {
		for _, target := range []string{"/", "//", "/a%2Fb%5e", "/a%2Fb%5e\"^", "//a%2Fb\"", "/a%2Fb|?", "/\xff%41?c=%2F\"", "/?a?"} {
			conn := dial(t, addr)
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", target)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			sent := strings.TrimPrefix(string(got), "a.example ")
			if sent = strings.TrimPrefix(sent, "https://a.example"); sent != target { // HTTP/1.1 allows both
				t.Errorf("%q: the origin got %q", target, got)
			}
		}
	})
}

// A request that the origin aborts is not sent again.
func TestBridgeAborted(t *testing.T) {
	var aborted atomic.Int32
	bridges(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			aborted.Add(1)
			panic(http.ErrAbortHandler)
		}
	}, func(t *testing.T, addr string) {
		aborted.Store(0)
		conn := dial(t, addr)
		in := bufio.NewReader(conn)
		for _, request := range []struct {
			path   string
			status int
		}{{"/", 200}, {"/abort", 502}} {
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", request.path)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != request.status {
				t.Fatalf("%s: %v, %v; want %d", request.path, resp, err, request.status)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		// The transport repeats a GET once if an HTTP/1.1 connection that it reused is closed.
		if n := aborted.Load(); n > 2 || n > 1 && !strings.HasSuffix(t.Name(), "/https") {
			t.Errorf("the origin got the request %d times", n)
		}
	})
}

// failing is a connection whose reads fail with an error, if they fail.
type failing struct {
	net.Conn
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err != nil {
		err = f.err
	}
	return n, err
}

// A timeout of the transport ends a request whose client has not sent all of it.
func TestBridgeTimesOut(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		timesOut(t, err)
	}
}

func timesOut(t *testing.T, timeout error) {
	dialed := make(chan net.Conn, 1)
	_, addr := startOrigin(t, "h2c", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = (<-dialed).SetReadDeadline(time.Unix(1, 0))
		<-r.Context().Done()
	}))
	o := http1.NewHTTP2Origin("http", func(...string) (net.Conn, error) {
		conn, err := net.Dial("tcp", addr)
		dialed <- conn
		return failing{conn, timeout}, err
	}, patience)
	t.Cleanup(o.Close)
	conn := dial(t, serve(t, relay{o}))
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 502 || string(body) != timeout.Error()+"\n" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

// A request may follow only when the transport no longer reads the body of the last one.
func TestBridgeClosesBodies(t *testing.T) {
	addr := startBridged(t, "h2c", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // does not read bodies
	for range 100 {
		resp, err := http.Post("http://"+addr, "", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// An HTTP/2 origin may send data after the head of an answer that has no body in HTTP/1.1. The next request does not
// notice.
func TestBodiesOfBodilessAnswers(t *testing.T) {
	bridges(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusNoContent)
			_ = http.NewResponseController(w).Flush() // the end of the stream comes later
		}
	}, func(t *testing.T, addr string) {
		conn := dial(t, addr)
		in := bufio.NewReader(conn)
		for _, path := range []string{"/empty", "/", "/empty", "/"} {
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if want := map[bool]int{true: 200, false: 204}[path == "/"]; resp.StatusCode != want {
				t.Fatalf("%s: status %d, want %d", path, resp.StatusCode, want)
			}
		}
	})
}
