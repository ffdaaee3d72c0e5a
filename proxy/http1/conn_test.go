package http1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// countingConn counts the writes to a client.
type countingConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

type countingListener struct {
	net.Listener
	writes atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countingConn{conn, &l.writes}, err
}

func options(h http1.Handler) http1.Options {
	return http1.Options{Handler: h, Limits: http1.Limits{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second, BodyTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}}
}

// run serves ln until the test ends.
func run(t *testing.T, o http1.Options, ln net.Listener) *http1.Server {
	t.Helper()
	s := http1.NewServer(o)
	go accept(s, ln)
	t.Cleanup(func() {
		_ = ln.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return s
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func TestPipelinedRefusalsAreOneWrite(t *testing.T) {
	ln := &countingListener{Listener: listen(t)}
	run(t, options(relay{}), ln)
	conn := dial(t, ln.Addr().String())
	const n = 20
	if _, err := io.WriteString(conn, strings.Repeat("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n", n)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for i := range n {
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 429 {
			t.Fatalf("answer %d: %v, %v", i, resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	if w := ln.writes.Load(); w != 1 {
		t.Errorf("%d answers were written in %d writes, want 1", n, w)
	}
}

// An answer to a pipelined request does not wait for the origin of the next one.
func TestPipelinedRequestsToSlowOrigins(t *testing.T) {
	for _, first := range []string{"/refused", "/"} {
		got := make(chan struct{})
		client := dial(t, start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-got
			}
		})))
		_, _ = io.WriteString(client, "GET "+first+" HTTP/1.1\r\nHost: x\r\n\r\nGET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
		answers := bufio.NewReader(client)
		if _, err := http.ReadResponse(answers, &http.Request{Method: "HEAD"}); err != nil {
			t.Errorf("%s before a slow request: %v", first, err)
		}
		close(got)
	}
}

// A request that arrives in pieces is read like one that arrives whole.
func TestPieces(t *testing.T) {
	addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %v", r.RequestURI, b, err)
	}))
	const two = "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" +
		"POST /two HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
	for cut := 1; cut < len(two); cut++ {
		conn := dial(t, addr)
		for _, piece := range []string{two[:cut], two[cut:]} {
			if _, err := io.WriteString(conn, piece); err != nil {
				t.Fatal(err)
			}
		}
		all, err := io.ReadAll(conn)
		if text := string(all); err != nil || !strings.Contains(text, `/one "hello" <nil>`) || !strings.Contains(text, `/two "abcde" <nil>`) {
			t.Fatalf("cut at %d: %q, %v", cut, text, err)
		}
	}
}

// A short body that was sent with its head is forwarded in one write with it, and a client that has
// pipelined more requests is served on the same connection.
func TestShortBodiesGoWithTheirHeads(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d bytes", len(b))
	}))
	defer back.Close()
	var writes atomic.Int32
	o := http1.NewOrigin(func() (net.Conn, error) {
		conn, err := net.Dial("tcp", back.Listener.Addr().String())
		return countingConn{conn, &writes}, err
	}, patience)
	defer o.Close()
	server := serve(t, relay{o})
	sizes := []int{1000, 5000, 20_000, 10}
	for _, format := range []string{"Content-Length: %d\r\n%s\r\n%s", "Transfer-Encoding: chunked\r\n%[2]s\r\n%[1]x\r\n%[3]s\r\n0\r\n\r\n"} {
		conn := dial(t, server)
		writes.Store(0)
		var all, want strings.Builder
		for i, n := range sizes {
			option := ""
			if i == len(sizes)-1 {
				option = gone
			}
			fmt.Fprintf(&all, "POST / HTTP/1.1\r\nHost: a\r\n"+format, n, option, strings.Repeat("x", n))
			fmt.Fprintf(&want, "%d bytes", n)
		}
		if _, err := io.WriteString(conn, all.String()); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		bodies := strings.Join(regexp.MustCompile(`\d+ bytes`).FindAllString(string(got), -1), "")
		if err != nil || bodies != want.String() || int(writes.Load()) != len(sizes) {
			t.Errorf("%s: bodies %q in %d writes, %v; want %q in %d", format, bodies, writes.Load(), err, want.String(), len(sizes))
		}
	}
}

// No repeatable request fails because the origin has closed its idle connections.
func TestIdleOriginConnectionsThatEnd(t *testing.T) {
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}))
	var mu sync.Mutex
	var kept []net.Conn
	back.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			mu.Lock()
			kept = append(kept, c)
			mu.Unlock()
		}
	}
	back.Start()
	defer back.Close()
	o := http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
	defer o.Close()
	addr := serve(t, relay{o})
	for i, method := range []string{"GET", "POST", "PUT", "POST", "HEAD", "GET"} {
		req, err := http.NewRequest(method, "http://"+addr, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || method != "HEAD" && string(b) != "body" {
			t.Errorf("request %d, %s: %d %q", i, method, resp.StatusCode, b)
		}
		for closed := false; !closed; {
			mu.Lock()
			for _, c := range kept {
				_ = c.Close()
				closed = true
			}
			kept = nil
			mu.Unlock()
		}
	}
}

// The next client does not get bytes that an origin sends after its answer, however soon it sends a request.
func TestOriginsThatSendMore(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
	for _, more := range []string{answer + "no", "the rest of a body"} {
		answered, sent := make(chan struct{}), make(chan struct{})
		addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, answer+"ok")
			<-answered
			_, _ = io.WriteString(conn, more)
			sent <- struct{}{}
		}))
		for range 2 {
			resp, err := http.Get("http://" + addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(text) != "ok" {
				t.Fatalf("after %q: %d %q, want ok", more, resp.StatusCode, text)
			}
			answered <- struct{}{}
			awaitClosed(t, "more is sent", sent)
		}
	}
}

// The node does not wait for the origin after the client has reset its connection.
func TestClientThatGoesAway(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	}))
	conn := dial(t, addr)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, "the origin gets the request", asked)
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
	awaitClosed(t, "the origin's connection is closed", left)
}

func TestTimeouts(t *testing.T) {
	o := options(relay{http1.NewOrigin(func() (net.Conn, error) { return nil, errors.New("none") }, patience)})
	for _, test := range []struct {
		name, sends, status string
		ends                time.Duration
	}{
		{"nothing", "", "", 10 * time.Second},
		{"half a head", "GET / HTTP/1.1\r\nHo", "HTTP/1.1 408 ", 10 * time.Second},
		{"after a request", "GET /refused HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 429 ", 10 * time.Second},
		{"a refused request whose body does not arrive", "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 429 ", 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			conn, theirs := net.Pipe()
			defer conn.Close()
			go http1.NewServer(o).Accept(theirs, http1.Start{Since: time.Now()})()
			begin := time.Now()
			if test.sends != "" {
				go func() { _, _ = io.WriteString(conn, test.sends) }() // the end of the connection may come first
			}
			all, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(all), test.status) || test.status == "" && len(all) > 0 {
				t.Errorf("%s: got %q, %v; want %q", test.name, all, err, test.status)
			}
			if took := time.Since(begin); took != test.ends {
				t.Errorf("%s: the connection ended after %v, want %v", test.name, took, test.ends)
			}
		})
	}
}

// Shutdown closes connections that wait for another request. A new connection is served if its first request arrives
// within conns.RequestWait, and is closed otherwise.
func TestShutdown(t *testing.T) {
	const ask = "GET /refused HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, test := range []struct {
		name string
		sent string // before Shutdown
		asks time.Duration
		want time.Duration // until Shutdown returns
	}{
		{"a request", "", conns.RequestWait - time.Millisecond, conns.RequestWait - time.Millisecond},
		{"half a head", ask[:10], 2 * conns.RequestWait, 2 * conns.RequestWait},
		{"nothing", "", 0, conns.RequestWait},
		{"no request after a refused one", ask, 0, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			s := http1.NewServer(options(relay{}))
			conn, far := net.Pipe()
			defer conn.Close()
			go s.Accept(far, http1.Start{Since: time.Now()})()
			if len(test.sent) > 0 {
				if _, err := io.WriteString(conn, test.sent); err != nil {
					t.Fatal(err)
				}
			}
			if test.sent == ask {
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 429 || resp.Close {
					t.Errorf("%s: %v, %v; want 429, and the connection kept", test.name, resp, err)
				}
				synctest.Wait()
			}
			start, took := time.Now(), make(chan time.Duration)
			go func() {
				if err := s.Shutdown(t.Context()); err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				took <- time.Since(start)
			}()
			if test.asks > 0 {
				time.Sleep(test.asks)
				if _, err := io.WriteString(conn, ask[len(test.sent):]); err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 429 || !resp.Close {
					t.Errorf("%s: %v, %v; want 429, and the connection closed", test.name, resp, err)
				}
			}
			if got := <-took; got != test.want {
				t.Errorf("%s: Shutdown took %v, want %v", test.name, got, test.want)
			}
		})
	}
}

// A client whose answer is under way when the server shuts down has not been asked to close the connection. It may send
// another request within conns.RequestWait; the answer asks it.
func TestShutdownDuringAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	for _, asks := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			answer := make(chan struct{})
			origin := http1.NewOrigin(func() (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					for in := bufio.NewReader(far); ; {
						if _, err := http.ReadRequest(in); err != nil {
							return
						}
						_, _ = io.WriteString(far, head+"ok")
						<-answer
						_, _ = io.WriteString(far, "ok")
					}
				}()
				return near, nil
			}, patience)
			defer origin.Close()
			s := http1.NewServer(options(relay{origin}))
			conn, far := net.Pipe()
			defer conn.Close()
			go s.Accept(far, http1.Start{Since: time.Now()})()
			in := bufio.NewReader(conn)
			read := func(during func()) (closes bool) {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				during()
				if body, err := io.ReadAll(resp.Body); string(body) != "okok" || err != nil {
					t.Errorf("%q, %v; want okok", body, err)
				}
				return resp.Close
			}
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			took := make(chan time.Duration)
			if read(func() {
				synctest.Wait()
				go func() {
					begin := time.Now()
					_ = s.Shutdown(t.Context())
					took <- time.Since(begin)
				}()
				time.Sleep(2 * conns.RequestWait)
				answer <- struct{}{}
			}) {
				t.Error("the answer that began before Shutdown asks to close the connection")
			}
			time.Sleep(conns.RequestWait - time.Millisecond)
			want := 3 * conns.RequestWait
			if asks {
				want -= time.Millisecond
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				if !read(func() { answer <- struct{}{} }) {
					t.Error("the last answer does not ask to close the connection")
				}
			}
			if got := <-took; got != want {
				t.Errorf("another request (%v): Shutdown took %v, want %v", asks, got, want)
			}
		})
	}
}

// A Shutdown whose time is over closes the connection of a request that its origin does not answer, whether the request
// is the first of its connection or a later one.
func TestShutdownOfRequestsInFlight(t *testing.T) {
	for requests := 1; requests <= 2; requests++ {
		asked := make(chan context.Context)
		back := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				asked <- r.Context()
				<-r.Context().Done()
			}
		}))
		defer back.Close()
		o := http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
		defer o.Close()
		s, ln := http1.NewServer(options(relay{o})), listen(t)
		defer ln.Close()
		go accept(s, ln)
		client := dial(t, ln.Addr().String())
		for range requests - 1 {
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.WriteString(client, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
		atOrigin := <-asked
		over, cancel := context.WithCancel(t.Context())
		cancel()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			if err := s.Shutdown(over); !errors.Is(err, context.Canceled) {
				t.Errorf("request %d: Shutdown: %v, want %v", requests, err, context.Canceled)
			}
		}()
		awaitClosed(t, "Shutdown returns", returned)
		awaitClosed(t, "the origin's connection is closed", atOrigin.Done())
		if _, err := io.ReadAll(client); http1.IsTimeout(err) {
			t.Errorf("request %d: the client's connection is still open", requests)
		}
	}
}
