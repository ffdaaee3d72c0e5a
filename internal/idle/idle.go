// Package idle checks connections that wait to be used again.
package idle

import (
	"crypto/tls"
	"net"
	"syscall"
)

// Quiet reports whether an idle connection is usable: open, with nothing to read. So no request is lost to a server
// that has stopped, and no unexpected answer is mistaken for the next one. Quiet returns true for a connection that
// it cannot check.
func Quiet(c net.Conn) bool {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		waits = err == syscall.EAGAIN
		return true
	})
	return err == nil && waits
}
