package load

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// A peeker checks whether the target has closed an idle connection.
type peeker struct {
	raw  syscall.RawConn // nil if nothing can be known
	look func(fd uintptr) bool
	open bool
	buf  [1]byte
}

func (p *peeker) reset(nc net.Conn) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	p.raw = nil
	if s, ok := nc.(syscall.Conn); ok {
		p.raw, _ = s.SyscallConn()
	}
	if p.look == nil {
		p.look = p.peek
	}
}

// idle reports whether nothing arrived on the connection since the last answer: neither its end nor
// anything else, such as a 408 or TLS close_notify.
func (p *peeker) idle() bool {
	p.open = true
	if p.raw != nil {
		_ = p.raw.Read(p.look) // the next request will see any error
	}
	return p.open
}

func (p *peeker) peek(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), p.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	p.open = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
	return true
}
