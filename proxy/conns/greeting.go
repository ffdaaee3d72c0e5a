package conns

import (
	"errors"
	"net"
	"syscall"
)

// Greetings returns a listener like ln whose connections count the bytes of TLS handshakes, which may have 64 KB each.
func Greetings(ln net.Listener) net.Listener {
	return wrappingListener{ln, func(conn net.Conn) net.Conn { return &Greeting{Conn: conn} }}
}

// A Greeting is a connection that may begin with a TLS handshake.
type Greeting struct {
	net.Conn
	holder *Holder // nil after the handshake
	read   int     // bytes since Charge
}

// freeGreeting is the size up to which handshakes do not count, in bytes. Ordinary ones are smaller.
const freeGreeting = 8 << 10

// Charge makes h hold the memory of bytes that are read until Charge is called with nil. If g is nil, it does nothing.
func (g *Greeting) Charge(h *Holder) {
	if g != nil {
		g.holder.Hold(0)
		g.holder = h
	}
}

// Read reads into a buffer of crypto/tls, which copies messages into another buffer that grows to twice their size.
func (g *Greeting) Read(p []byte) (n int, err error) {
	if size := len(p) + 2*g.read; g.holder != nil && size > freeGreeting {
		g.holder.Hold(size)
	}
	n, err = g.Conn.Read(p)
	if g.holder != nil {
		g.read += n
	}
	return n, err
}

// SyscallConn returns the socket, if the connection has one.
func (g *Greeting) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := g.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
