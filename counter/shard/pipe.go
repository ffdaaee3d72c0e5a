package shard

import (
	"context"
	"net"
	"sync"
)

// Pipe is an in-process listener. It connects each Dial to an Accept without sockets.
type Pipe struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewPipe returns an open Pipe.
func NewPipe() *Pipe {
	return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the pipe, whatever network and addr are. It fails once the pipe is
// closed.
func (p *Pipe) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	near, far := net.Pipe()
	if err := p.Give(ctx, far); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: err}
	}
	return near, nil
}

// Give waits until Accept returns conn. It fails once the pipe is closed.
func (p *Pipe) Give(ctx context.Context, conn net.Conn) error {
	select {
	case p.conns <- conn:
		return nil
	case <-p.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Accept returns the far end of the next Dial, or the next connection passed to Give.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections stay open.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the address of all pipes.
func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "pipe"} }
