package http1_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// panicky is a relay that panics if a request's path contains panic, or if the origin's status is 599.
type panicky struct{ relay }

func (h panicky) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	if strings.Contains(string(r.Path()), "panic") {
		panic("as the client wants")
	}
	o, edit := h.relay.Serve(c, r)
	if o != nil {
		edit = panicking{edit.(passing)}
	}
	return o, edit
}

type panicking struct{ passing }

func (p panicking) Answered(dst []byte, a *http1.Answer) ([]byte, bool) {
	if a.Status == 599 {
		panic("as the origin wants")
	}
	return p.passing.Answered(dst, a)
}

// A looped is a server that uses loops even with a single connection.
type looped struct {
	*http1.Server
	t        *testing.T
	addr     string
	accepted chan *watched
}

// A watched is a connection that counts calls of SetReadDeadline.
type watched struct {
	*http1.Socket
	deadlines atomic.Int32
}

func (w *watched) SetReadDeadline(by time.Time) error {
	w.deadlines.Add(1)
	return w.Socket.SetReadDeadline(by)
}

func newLooped(t *testing.T, h http1.Handler, idle time.Duration) *looped {
	t.Helper()
	o := options(h)
	o.Logger, o.IdleTimeout, o.ReadHeaderTimeout = slog.New(slog.DiscardHandler), 2*idle, idle
	ln := listen(t)
	l := &looped{http1.NewServer(o), t, ln.Addr().String(), make(chan *watched, 256)}
	l.SetMany(1)
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			w := &watched{Socket: http1.NewSocket(conn).(*http1.Socket)}
			l.accepted <- w
			go l.Accept(w, http1.Start{Since: time.Now()})()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		if err := l.Shutdown(context.Background()); err != nil || !l.LoopsEnded() {
			t.Errorf("Shutdown: %v; the loops have ended: %v", err, l.LoopsEnded())
		}
	})
	return l
}

// A client is connected to a looped server.
type client struct {
	net.Conn
	l       *looped
	answers *bufio.Reader
}

const refused = "GET /refused HTTP/1.1\r\nHost: a\r\n\r\n"

// client returns a client that waits in a loop: a new connection joins one after its first refusal.
func (l *looped) client() *client {
	l.t.Helper()
	c := &client{Conn: dial(l.t, l.addr), l: l}
	c.answers = bufio.NewReader(c)
	before := l.InLoops()
	c.ask(refused, 429)
	l.awaitInLoops(before + 1)
	return c
}

// join makes c, which has left its loop, wait in one again.
func (c *client) join() {
	c.l.t.Helper()
	before := c.l.InLoops()
	for range 4 {
		c.ask(refused, 429)
	}
	c.l.awaitInLoops(before + 1)
}

func (l *looped) awaitInLoops(n int) {
	l.t.Helper()
	harness.Until(l.t, "the connections in loops change", patience, time.Millisecond, func() bool { return l.InLoops() == n })
}

func (c *client) send(text string) {
	c.l.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.l.t.Error(err)
	}
}

// answered reads an answer, which must have this status.
func (c *client) answered(status int) {
	c.l.t.Helper()
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.l.t.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status {
		c.l.t.Errorf("%s, %v; want %d", resp.Status, err, status)
	}
}

func (c *client) ask(text string, status int) {
	c.l.t.Helper()
	c.send(text)
	c.answered(status)
}

// isClosed fails the test unless the server closes the connection and sends nothing before.
func (c *client) isClosed() {
	c.l.t.Helper()
	if n, err := io.Copy(io.Discard, c.answers); n > 0 || http1.IsTimeout(err) {
		c.l.t.Fatalf("the connection is not closed: %d bytes, %v", n, err)
	}
}

// A connection in a loop is served like any other. When it has to wait, the other connections of the loop do not.
func TestLoop(t *testing.T) {
	release := make(chan struct{})
	origin := newOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	})
	full := strings.Replace(refused, "\r\n\r\n", "\r\nX: "+strings.Repeat("x", 4096-len(refused)-5)+"\r\n\r\n", 1)
	const post = "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	for _, test := range []struct {
		name, sends string
		rest        func(c *client)
		stays       bool
	}{
		{name: "a refused request", sends: refused, rest: func(c *client) { c.answered(429) }, stays: true},
		{name: "two in one packet", sends: refused + refused, rest: func(c *client) { c.answered(429); c.answered(429) }, stays: true},
		{name: "one that passes", sends: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", rest: func(c *client) { c.answered(200) }},
		{name: "a slow origin", sends: "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", rest: func(c *client) {
			release <- struct{}{}
			c.answered(200)
		}},
		{name: "half a head", sends: refused[:20], rest: func(c *client) { c.ask(refused[20:], 429) }},
		{name: "a body", sends: post + "hello", rest: func(c *client) { c.answered(429) }},
		{name: "several that fill the buffer", sends: strings.Repeat(full, 3), rest: func(c *client) {
			for range 3 {
				c.answered(429)
			}
		}},
	} {
		l := newLooped(t, relay{origin}, patience)
		c, other := l.client(), l.client()
		l.awaitInLoops(2)
		c.send(test.sends)
		if !test.stays {
			l.awaitInLoops(1)
		}
		for range 10 {
			other.ask(refused, 429)
		}
		test.rest(c)
		if test.stays {
			l.awaitInLoops(2)
		} else {
			l.awaitInLoops(1)
			c.join() // again
		}
	}
}

// A client that sends requests and does not read the answers delays nobody else.
func TestLoopWhoseClientsDoNotRead(t *testing.T) {
	l := newLooped(t, relay{}, patience)
	c := l.client()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	raw, _ := (<-l.accepted).SyscallConn()
	_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10) })
	other := l.client()
	l.awaitInLoops(2)
	n := 0
	harness.Until(t, "c leaves the loop, because its answers wait for it", patience, time.Millisecond, func() bool {
		c.send(strings.Repeat(refused, 20)) // less than the node's buffer
		n += 20
		return l.InLoops() == 1
	})
	for range 100 {
		other.ask(refused, 429)
	}
	for range n {
		c.answered(429)
	}
}

// When a connection in a loop ends, for any reason, it leaves the loop, which continues to serve the others.
func TestEndsInLoop(t *testing.T) {
	for name, end := range map[string]func(l *looped, c *client, accepted *watched){
		"the client closes it":           func(_ *looped, c *client, _ *watched) { _ = c.Close() },
		"the client shuts down its side": func(_ *looped, c *client, _ *watched) { _ = c.Conn.(*net.TCPConn).CloseWrite(); c.isClosed() },
		"the node has too many connections": func(_ *looped, c *client, accepted *watched) {
			conns.NewBudget(1, 0, func(bool) {}).Holder(accepted, netip.Addr{}).Hold(2)
			c.isClosed()
		},
		"the handler panics": func(_ *looped, c *client, _ *watched) {
			c.send("GET /refused/panic HTTP/1.1\r\nHost: a\r\n\r\n")
			c.isClosed()
		},
		"a request that ends it":          func(_ *looped, c *client, _ *watched) { c.ask("GET /refused HTTP/1.0\r\n\r\n", 429); c.isClosed() },
		"a malformed request":             func(_ *looped, c *client, _ *watched) { c.ask("GET\r\n\r\n", 400); c.isClosed() },
		"a request, and the client's end": func(_ *looped, c *client, _ *watched) { c.sendLast(refused); c.answered(429); c.isClosed() },
		"several requests, and such an end": func(_ *looped, c *client, _ *watched) {
			c.sendLast(refused + refused)
			c.answered(429)
			c.answered(429)
			c.isClosed()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLooped(t, panicky{}, patience)
			c := l.client()
			accepted := <-l.accepted
			other := l.client()
			l.awaitInLoops(2)
			end(l, c, accepted)
			l.awaitInLoops(1)
			other.ask(refused, 429)
			l.awaitInLoops(1)
		})
	}
}

// sendLast sends text and shuts down the client's side.
func (c *client) sendLast(text string) {
	c.send(text)
	_ = c.Conn.(*net.TCPConn).CloseWrite()
}

// Connections in a loop are closed after the idle timeout.
func TestIdleInLoop(t *testing.T) {
	l := newLooped(t, relay{}, 2*time.Second)
	c := l.client()
	c.isClosed()
	l.awaitInLoops(0)
}

// When a connection leaves a loop, because a head is incomplete, its socket gets the deadline for the rest of the head.
func TestDeadlineAfterLoop(t *testing.T) {
	l := newLooped(t, relay{}, patience)
	c := l.client()
	accepted := <-l.accepted
	c.ask(refused, 429)
	before := accepted.deadlines.Load()
	c.send(refused[:20])
	l.awaitInLoops(0)
	harness.Until(t, "a deadline is set", patience, time.Millisecond, func() bool { return accepted.deadlines.Load() > before })
	c.ask(refused[20:], 429)
}

// A connection gets the deadline for its next request before it joins a loop, since it may stay outside: if others end
// at that moment, too few are left.
func TestDeadlineBeforeLoop(t *testing.T) {
	l := newLooped(t, relay{newOrigin(t, func(http.ResponseWriter, *http.Request) {})}, patience)
	c := &client{Conn: dial(t, l.addr), l: l}
	c.answers = bufio.NewReader(c)
	for l.InLoops() == 0 { // a busy machine may make an answer late
		c.ask(get, 200)
	}
	if n := (<-l.accepted).deadlines.Load(); n < 2 {
		t.Errorf("%d deadlines were set, want one for the first request and one for the next", n)
	}
}

// Shutdown closes idle connections in loops immediately, and ends the loops.
func TestShutdownOfLoops(t *testing.T) {
	l := newLooped(t, relay{}, patience)
	clients := []*client{l.client(), l.client(), l.client()}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		c.isClosed()
	}
}

// Connections join and leave loops, and end, concurrently.
func TestBusyLoops(t *testing.T) {
	l := newLooped(t, relay{newOrigin(t, func(http.ResponseWriter, *http.Request) {})}, patience)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 4 {
				c := &client{Conn: dial(t, l.addr), l: l}
				c.answers = bufio.NewReader(c)
				for j := range 40 {
					if j%7 == i%7 {
						c.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200)
					} else {
						c.ask(refused, 429)
					}
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	l.awaitInLoops(0)
}

// newOrigin returns an origin whose requests h answers.
func newOrigin(t *testing.T, h http.HandlerFunc) *http1.Origin {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	o := http1.NewOrigin(dialer(s.Listener.Addr().String()), patience)
	t.Cleanup(o.Close)
	return o
}
