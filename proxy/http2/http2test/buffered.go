// Package http2test has helpers for tests of HTTP/2 over pipes.
package http2test

import (
	"context"
	"net"
	"sync"
)

// Dial wraps dial. Connections buffer everything that is written to them, as a socket buffers some of it:
// both ends of an HTTP/2 connection may write before they read.
func Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		b := &buffered{Conn: conn}
		b.more.L = &b.mu
		go b.run()
		return b, nil
	}
}

// A buffered is a connection whose writes succeed until it is closed.
type buffered struct {
	net.Conn
	mu     sync.Mutex
	more   sync.Cond
	data   []byte
	closed bool
}

func (b *buffered) run() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		if len(b.data) == 0 {
			b.more.Wait()
			continue
		}
		data := b.data
		b.data = nil
		b.mu.Unlock()
		_, err := b.Conn.Write(data)
		b.mu.Lock()
		b.closed = b.closed || err != nil
	}
}

func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.data = append(b.data, p...)
	b.more.Signal()
	return len(p), nil
}

func (b *buffered) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Signal()
	return b.Conn.Close()
}
