// Package http2test has helpers for tests of HTTP/2 over pipes.
package http2test

import (
	"bytes"
	"context"
	"net"
	"sync"
)

// Dial wraps dial. Its connections buffer all output, as sockets buffer some of it: both ends of an HTTP/2 connection
// may write before they read.
func Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &bufferedConn{Conn: conn}, nil
	}
}

// A bufferedConn is a connection whose writes succeed immediately.
type bufferedConn struct {
	net.Conn
	mu   sync.Mutex
	last chan struct{} // closed when the last write has ended; nil before the first one
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, before, ended := bytes.Clone(p), b.last, make(chan struct{})
	b.last = ended
	go func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		_, _ = b.Conn.Write(data) // if the connection is closed, the reader notices
	}()
	return len(p), nil
}
