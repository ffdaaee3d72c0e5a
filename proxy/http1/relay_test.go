package http1_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http1"
)

// A play has the bytes that a client sends, those that the origin must get, the origin's answer, and the answer that
// the client must get. The origin reads all that it must get before it answers.
type play struct {
	name                         string
	sends, gets, answers, wanted string
	closes                       bool // the origin closes after its answer
	halfClose                    bool // the client shuts down its side after sends
}

const (
	added = "X-Via: edge\r\n" // by plain, to requests
	node  = "X-Node: n1\r\n"  // by plain, to answers
	gone  = "Connection: close\r\n"
)

var plays = []play{
	{
		name:    "names, order, repetitions and blanks are kept",
		sends:   "GET /a?b HTTP/1.1\r\nhOsT: x\r\nB:  1 \r\nA: 2\r\nb: 3\r\nConnection: close\r\n\r\n",
		gets:    "GET /a?b HTTP/1.1\r\nhOsT: x\r\nB:  1\r\nA: 2\r\nb: 3\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 Fine\r\nETag: x\r\nset-cookie: a\r\nContent-Length: 2\r\nSet-Cookie: b\r\n\r\nok",
		wanted:  "HTTP/1.1 200 Fine\r\nETag: x\r\nset-cookie: a\r\nContent-Length: 2\r\nSet-Cookie: b\r\n" + node + gone + "\r\nok",
	}, {
		name:    "connection-specific fields",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close, X-A, host, content-length\r\nX-a: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTE: gzip\r\nUpgrade: x\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-B\r\nx-b: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + node + gone + "\r\n",
	}, {
		name:    "trailers are welcome",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\n" + node + "Transfer-Encoding: chunked\r\n" + gone + "\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
	}, {
		name:    "absolute form",
		sends:   "GET http://y:1/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET /a HTTP/1.1\r\nHost: y:1\r\n" + added + "\r\n",
		answers: "HTTP/1.1 204 No Content\r\n\r\n",
		wanted:  "HTTP/1.1 204 No Content\r\n" + node + gone + "\r\n",
	}, {
		name:    "body with a length, sent with the head",
		sends:   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
		gets:    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + added + "\r\nabc",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + node + gone + "\r\n",
	}, {
		name:    "chunked body with trailers",
		sends:   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3;e=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		gets:    "POST / HTTP/1.1\r\nHost: x\r\n" + added + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + node + gone + "\r\n",
	}, {
		name:    "answer until the origin closes",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\n\r\nuntil the end",
		closes:  true, halfClose: true,
		wanted: "HTTP/1.1 200 OK\r\n" + node + "Transfer-Encoding: chunked\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n",
	}, {
		name:    "HTTP/1.0 client, chunked answer",
		sends:   "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\n" + node + gone + "\r\nok",
	}, {
		name:      "keep-alive that was asked for",
		sends:     "GET / HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n",
		gets:      "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers:   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		wanted:    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + "Connection: keep-alive\r\n\r\nok",
		halfClose: true,
	}, {
		name:    "HTTP/1.0 client is sent no interim answer",
		sends:   "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + gone + "\r\nok",
	}, {
		name:    "interim answers",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		wanted:  "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + gone + "\r\nok",
	}, {
		name:    "HTTP/1.0 client without Host",
		sends:   "GET / HTTP/1.0\r\n\r\n",
		gets:    "GET / HTTP/1.0\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + gone + "\r\nok",
	}, {
		name:    "HEAD",
		sends:   "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "HEAD / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n" + node + gone + "\r\n",
	}, {
		name:    "304 with a length",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 304 Not Modified\r\nContent-Length: 200\r\n\r\n",
		wanted:  "HTTP/1.1 304 Not Modified\r\nContent-Length: 200\r\n" + node + gone + "\r\n",
	}, {
		name:    "100 Continue",
		sends:   "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
		gets:    "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n" + added + "\r\n",
		answers: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n",
		wanted:  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n" + node + gone + "\r\n",
	}, {
		name:    "early answer",
		sends:   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
		gets:    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n" + added + "\r\nabc",
		answers: "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
		wanted:  "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n" + node + gone + "\r\nno",
	}, {
		name:    "malformed chunk",
		sends:   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
		answers: "",
		wanted:  "HTTP/1.1 400 Bad Request\r\n",
	}, {
		name:    "answer that cannot be read",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nX: \x01\r\n\r\n",
		wanted:  "HTTP/1.1 502 Bad Gateway\r\n",
	}, {
		name:   "origin closes without an answer",
		sends:  "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:   "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		closes: true,
		wanted: "HTTP/1.1 502 Bad Gateway\r\n",
	}, {
		name:    "half-closed client",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", halfClose: true,
		wanted: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + "\r\nok",
	}, {
		name:    "upgrade, with bytes after both heads",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n" + added + "Connection: upgrade\r\n\r\n",
		answers: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst",
		closes:  true,
		wanted:  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" + node + "Connection: upgrade\r\n\r\nfirst",
	}, {
		name:    "unrequested protocol switch",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
		wanted:  "HTTP/1.1 502 Bad Gateway\r\n",
	}, {
		name:    "upgrade to HTTP/2 is not asked for",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + node + gone + "\r\n",
	}, {
		name:    "HTTP/1.0 answer",
		sends:   "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		gets:    "GET / HTTP/1.1\r\nHost: x\r\n" + added + "\r\n",
		answers: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		wanted:  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + node + gone + "\r\nok",
	},
}

func TestPlays(t *testing.T) {
	for _, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			back := newStage(t)
			addr := serve(t, relay{back.origin(t)})
			got := make(chan string, 1)
			go func() { got <- back.act(t, p) }()
			conn := dial(t, addr)
			if _, err := io.WriteString(conn, p.sends); err != nil {
				t.Fatal(err)
			}
			if p.halfClose {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
			all, err := io.ReadAll(conn)
			if err != nil {
				t.Errorf("reading the answer: %v", err)
			}
			if answer := string(all); answer != p.wanted && !(strings.HasSuffix(p.wanted, "\r\n") && !strings.Contains(p.wanted, "\r\n\r\n") && strings.HasPrefix(answer, p.wanted)) {
				t.Errorf("the client got %q\nwant %q", answer, p.wanted)
			}
			if p.gets == "" {
				_ = back.ln.Close()
				<-got
				return
			}
			if saw := <-got; saw != p.gets {
				t.Errorf("the origin got %q\nwant %q", saw, p.gets)
			}
		})
	}
}

// A stage is the listener at which an origin acts.
type stage struct{ ln net.Listener }

func newStage(t *testing.T) *stage {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return &stage{ln}
}

func (s *stage) origin(t *testing.T) *http1.Origin {
	o := http1.NewOrigin(dialer(s.ln.Addr().String()), patience)
	t.Cleanup(o.Close)
	return o
}

// act plays the origin on one connection, and returns what it got.
func (s *stage) act(t *testing.T, p play) string {
	conn, err := s.ln.Accept()
	if err != nil {
		return ""
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	got := make([]byte, len(p.gets))
	n, err := io.ReadFull(conn, got)
	if err != nil && p.gets != "" {
		t.Errorf("the origin got %q: %v", got[:n], err)
	}
	if _, err := io.WriteString(conn, p.answers); err != nil {
		t.Error(err)
	}
	if p.closes {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	return string(got[:n])
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// A stalled is a relay on a machine that stalls before it forwards a request.
type stalled struct{ relay }

func (h stalled) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	c.(*http1.Conn).Stall(10 * time.Second)
	return h.relay.Serve(c, r)
}

// A request that was delayed on its way to the origin, even by connecting, is still sent, and the
// origin has its full time to answer.
func TestDelayedRequests(t *testing.T) {
	back := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(back.Close)
	o := http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
	t.Cleanup(o.Close)
	addr := serve(t, stalled{relay{o}})
	for _, connection := range []string{"a new", "a kept"} {
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("on %s connection: %d %q, want 404", connection, resp.StatusCode, text)
		}
	}
}

// The node still waits for a slow origin if the connection has kept the deadline of an earlier request, which then
// passes too early.
func TestDeadlinesSeldomMove(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var moved atomic.Int32
		o := http1.NewOrigin(func() (net.Conn, error) { return deadlined{near, &moved}, nil }, patience)
		defer o.Close()
		client, conn := net.Pipe()
		go http1.NewServer(options(relay{o})).Accept(conn, http1.Start{Since: time.Now()})()
		answers := bufio.NewReader(client)
		for _, takes := range []time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
					t.Error(err)
				}
				time.Sleep(takes)
				_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}()
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(text) != "ok" {
				t.Errorf("after %v: %d %q %v", takes, resp.StatusCode, text, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := moved.Load(); got != 2 {
			t.Errorf("the deadline was set %d times, want 2: for the first request, and when it had passed", got)
		}
		_ = client.Close()
	})
}

// A deadlined counts how often its read deadline is set.
type deadlined struct {
	net.Conn
	moved *atomic.Int32
}

func (c deadlined) SetReadDeadline(t time.Time) error {
	c.moved.Add(1)
	return c.Conn.SetReadDeadline(t)
}
