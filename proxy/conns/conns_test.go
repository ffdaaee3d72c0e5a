package conns_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edge/proxy/conns"
)

func TestLogPanic(t *testing.T) {
	var log bytes.Buffer
	func() {
		defer conns.LogPanic(slog.New(slog.NewTextHandler(&log, nil)), "panic in a test")
		panic("out of order")
	}()
	for _, want := range []string{"panic in a test", "out of order", "conns_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, &log)
		}
	}
}

// A handshake that is not small holds memory until it ends.
func TestGreeting(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() { _, _ = far.Write(make([]byte, 10<<10)) }()
	budget := conns.NewBudget(1<<20, 0, func(bool) {})
	g := &conns.Greeting{Conn: near}
	g.Charge(budget.Holder(near, netip.MustParseAddr("192.0.2.1")))
	part := make([]byte, 5<<10)
	for _, want := range []int{0, 15 << 10} {
		if _, err := io.ReadFull(g, part); err != nil || budget.Bytes() != want {
			t.Errorf("%v, %d bytes are held, want %d", err, budget.Bytes(), want)
		}
	}
	g.Charge(nil)
	if n := budget.Bytes(); n != 0 {
		t.Errorf("%d bytes are held after the handshake, want none", n)
	}
}

// A worker is a connection that does nothing.
type worker struct{ net.Conn }

func (*worker) Leave(bool) {}
func (*worker) Cut()       {}

// A connection that comes after Shutdown is closed, and its end is noted once, like that of any other.
func TestBegin(t *testing.T) {
	var s conns.Server[*worker]
	ended := 0
	begin := func() (done func(), conn *closable) {
		conn = new(closable)
		return s.Begin(new(worker), conn, func() { ended++ }), conn
	}
	done, conn := begin()
	if done(); ended != 1 || conn.closed {
		t.Errorf("a connection has ended %d times, and was closed (%v), want once and not", ended, conn.closed)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, conn := begin(); done != nil || ended != 2 || !conn.closed {
		t.Errorf("after Shutdown: begun %v, ended %d times, closed %v; want the connection closed", done != nil, ended-1, conn.closed)
	}
}
