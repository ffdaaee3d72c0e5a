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

	"github.com/edgelimit/edge/proxy/http1"
)

// A scripted origin answers as the test wants.
type scripted struct {
	t     *testing.T
	asked chan net.Conn // receives the connection that a request has come from
	ended chan net.Conn // receives the connections that have ended
}

const (
	get  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

func newScripted(t *testing.T) (*scripted, *http1.Origin) {
	s := &scripted{t, make(chan net.Conn), make(chan net.Conn, 16)}
	ln := listen(t)
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				in := bufio.NewReader(conn)
				for r, err := http.ReadRequest(in); err == nil; r, err = http.ReadRequest(in) {
					select {
					case s.asked <- conn:
					case <-t.Context().Done():
					}
					_, _ = io.Copy(io.Discard, r.Body)
				}
				s.ended <- conn
			}()
		}
	}()
	o := http1.NewOrigin(dialer(ln.Addr().String()), patience)
	t.Cleanup(o.Close)
	return s, o
}

func (s *scripted) send(conn net.Conn, text string) {
	s.t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Error(err)
	}
}

// answer answers the next request.
func (s *scripted) answer() {
	s.t.Helper()
	s.send(<-s.asked, ok)
}

// suspended returns a client in a loop whose request, over the connection that is also returned, waits for its answer, for
// at most slow.
func (s *scripted) suspended(o *http1.Origin, request string, slow time.Duration) (*looped, *client, net.Conn) {
	s.t.Helper()
	l := newLooped(s.t, relay{o}, patience)
	l.SetSlow(slow)
	c := l.client()
	c.send(get) // leaves the loop to connect to the origin
	s.answer()
	c.answered(200)
	c.join()
	c.send(request)
	if slow > time.Second {
		l.awaitInLoops(2) // its socket, and that of the origin
	}
	return l, c, <-s.asked
}

// While a connection in a loop waits for an origin, anything may happen.
func TestPassingInLoop(t *testing.T) {
	for _, test := range []struct {
		name, request string
		then          func(s *scripted, l *looped, c *client, conn net.Conn)
		stays         bool
	}{
		{"the origin answers", get, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			s.send(conn, ok)
			c.answered(200)
		}, true},
		{"the origin answers in two parts", get, func(s *scripted, l *looped, c *client, conn net.Conn) {
			s.send(conn, ok[:len(ok)-1])
			l.awaitInLoops(0)
			s.send(conn, ok[len(ok)-1:])
			c.answered(200)
		}, false},
		{"the origin is slow", get, func(s *scripted, l *looped, c *client, conn net.Conn) {
			l.awaitInLoops(0)
			s.send(conn, ok)
			c.answered(200)
		}, false},
		{"the origin's answer is invalid", get, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			s.send(conn, "nonsense\r\n\r\n")
			c.answered(502)
		}, true},
		{"the origin closes the connection", get, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			_ = conn.Close()
			s.answer()
			c.answered(200)
		}, false},
		{"the origin closes the connection of a POST", post, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			_ = conn.Close()
			c.answered(502)
		}, false},
		{"the client sends two requests at once", get + get, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			s.send(conn, ok)
			s.answer()
			c.answered(200)
			c.answered(200)
		}, false},
		{"the client sends another request", get, func(s *scripted, _ *looped, c *client, conn net.Conn) {
			c.send(get)
			s.send(conn, ok)
			c.answered(200)
			s.answer()
			c.answered(200)
		}, false},
		{"the client shuts down its side", get, func(s *scripted, l *looped, c *client, conn net.Conn) {
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			l.awaitInLoops(0)
			s.send(conn, ok)
			c.answered(200)
			c.isClosed()
		}, false},
		{"the client resets the connection", get, func(s *scripted, l *looped, c *client, conn net.Conn) {
			_ = c.Conn.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			if ended := <-s.ended; ended != conn {
				t.Error("another connection has ended")
			}
		}, false},
		{"the node shuts down", get, func(s *scripted, l *looped, c *client, conn net.Conn) {
			ended := make(chan error)
			go func() { ended <- l.Shutdown(t.Context()) }()
			s.send(conn, ok)
			c.answered(200)
			c.isClosed()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, o := newScripted(t)
			slow := patience
			if test.name == "the origin is slow" {
				slow = time.Millisecond
			}
			l, c, conn := s.suspended(o, test.request, slow)
			test.then(s, l, c, conn)
			if test.stays {
				l.awaitInLoops(1)
			} else {
				l.awaitInLoops(0)
			}
		})
	}
}

// A connection whose requests pass joins a loop after the first one if a loop could have served that. If not, it joins
// after several that a loop could have served in a row.
func TestPassingJoinsLoop(t *testing.T) {
	for _, test := range []struct {
		name, first string
		least       int // number of other requests before it joins a loop
	}{
		{"no body", get, 0},
		{"a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, o := newScripted(t)
			l := newLooped(t, relay{o}, patience)
			c := &client{Conn: dial(t, l.addr), l: l}
			c.answers = bufio.NewReader(c)
			l.SetSlow(patience)
			n := -1
			for text := test.first; l.InLoops() == 0; text = get { // a busy machine may make an answer late
				c.send(text)
				s.answer()
				c.answered(200)
				n++
			}
			if n < test.least {
				t.Errorf("the connection has joined a loop after %d more requests, want at least %d", n, test.least)
			}
			c.send(get)
			l.awaitInLoops(2)
			s.answer()
			c.answered(200)
			l.awaitInLoops(1)
		})
	}
}

// A connection to an origin that is not a socket, such as one with TLS, cannot wait in a loop. It stays usable.
func TestPassingInLoopWithoutSocket(t *testing.T) {
	ln := listen(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	var dials atomic.Int32
	o := http1.NewOrigin(func() (net.Conn, error) {
		dials.Add(1)
		conn, err := net.Dial("tcp", ln.Addr().String())
		return struct{ net.Conn }{conn}, err
	}, patience)
	t.Cleanup(o.Close)
	c := newLooped(t, relay{o}, patience).client()
	for range 3 {
		c.ask(get, 200)
		c.join()
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections to the origin, want 1", n)
	}
}

// An exchange that panics ends: its connection to the origin is closed, and nothing reads the client's body any more.
func TestPanicEndsExchange(t *testing.T) {
	for _, test := range []struct{ name, request string }{
		{"no body", get},
		{"a body that has not arrived", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, o := newScripted(t)
			c := newLooped(t, panicky{relay{o}}, patience).client()
			c.send(test.request)
			conn := <-s.asked
			s.send(conn, strings.Replace(ok, "200", "599", 1))
			c.isClosed()
			select {
			case <-s.ended:
			case <-time.After(5 * time.Second):
				t.Error("the connection to the origin stays open")
			}
		})
	}
}
