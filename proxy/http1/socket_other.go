//go:build !linux

package http1

import (
	"math"
	"net"
	"syscall"
	"time"
)

func readSocket(fd uintptr, b []byte) (n int, err syscall.Errno) {
	return result(syscall.Read(int(fd), b))
}

func writeSocket(fd uintptr, b []byte) (n int, err syscall.Errno) {
	return result(syscall.Write(int(fd), b))
}

func result(n int, err error) (int, syscall.Errno) {
	errno, _ := err.(syscall.Errno)
	return n, errno
}

// reportEmpty is implemented on Linux only. Elsewhere, the engine reads an empty socket once more.
func reportEmpty(uintptr) bool { return false }

func receive(fd uintptr, b []byte) (n int, empty bool, err syscall.Errno) {
	n, err = readSocket(fd, b)
	return n, false, err
}

const pollErr, pollHup = 0, 0

// hungUp is implemented on Linux only. Elsewhere, a failed write shows that the peer is gone.
func hungUp(uintptr) int16 { return 0 }

// Loops are implemented on Linux only. Elsewhere, each connection has its own goroutine.
const many = math.MaxInt32

type (
	loop  struct{}
	loops struct{}
)

func (c *Conn) join() bool                 { return false }
func (c *Conn) leave()                     {}
func (c *Conn) awaits(*originConn)         {}
func (l *loop) lead(c **Conn) (begun bool) { return false }
func (ls *loops) close()                   {}

func (c *originConn) unwatch() {}

// A Socket is a TCP connection.
type Socket = net.TCPConn

// NewSocket returns conn.
func NewSocket(conn net.Conn) net.Conn { return conn }

func (l *loop) take(*Origin, time.Time) *originConn { return nil }
