package memcached

import (
	"net"
	"syscall"
)

// quiet reports whether an idle connection is usable: open, with nothing to read. This avoids
// losing a batch to a memcached that has stopped, or mistaking an unexpected answer for the next one.
func quiet(c net.Conn) bool {
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
