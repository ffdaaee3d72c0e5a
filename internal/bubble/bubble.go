// Package bubble runs tests on a virtual clock.
package bubble

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test with one processor: the race detector crashes if two threads fire timers
// of one bubble (go.dev/issue/78156).
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// A Listener has connections within the process, which a virtual clock needs.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

// NewListener returns a Listener.
func NewListener() *Listener {
	done := make(chan struct{})
	return &Listener{make(chan net.Conn), done, sync.OnceFunc(func() { close(done) })}
}

// Dial returns the client's end of a connection once the other end is accepted.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It may be called twice.
func (l *Listener) Close() error { l.close(); return nil }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }
