package http1

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readSocket and writeSocket are recv(2) and send(2) for non-blocking sockets. syscall.Read would tell the scheduler
// about every call: its monitor thread then wakes up every 20 µs, and may move the other goroutines to another thread.
// On one core, that adds a seventh to the cost of a refused request.
func readSocket(fd uintptr, b []byte) (n int, err syscall.Errno) {
	r, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(r), err
}

func writeSocket(fd uintptr, b []byte) (n int, err syscall.Errno) {
	r, _, err := syscall.RawSyscall6(syscall.SYS_SENDTO, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(r), err
}

// reportEmpty makes receive report whether it has emptied the socket. ok is false if the kernel does not support that.
func reportEmpty(fd uintptr) (ok bool) {
	return unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_INQ, 1) == nil
}

// receive is like readSocket, and also returns whether nothing is left to read, not even the end of the stream.
func receive(fd uintptr, b []byte) (n int, empty bool, err syscall.Errno) {
	var report struct {
		head unix.Cmsghdr
		left int32
	}
	block := unix.Iovec{Base: unsafe.SliceData(b)}
	block.SetLen(len(b))
	m := unix.Msghdr{Iov: &block, Control: (*byte)(unsafe.Pointer(&report))}
	m.SetIovlen(1)
	m.SetControllen(int(unsafe.Sizeof(report)))
	r, _, err := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&m)), 0)
	empty = report.head.Level == unix.SOL_TCP && report.head.Type == unix.TCP_CM_INQ && report.left == 0
	return int(r), empty, err
}

const (
	pollErr = unix.POLLERR
	pollHup = unix.POLLHUP
)

// hungUp returns how the peer of the socket fd has ended the connection: POLLRDHUP if it has shut down its side,
// POLLHUP or POLLERR if it is gone, else 0.
func hungUp(fd uintptr) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
		return 0
	}
	return fds[0].Revents
}
