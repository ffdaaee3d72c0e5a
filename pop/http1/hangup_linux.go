package http1

import (
	"golang.org/x/sys/unix"
)

const (
	pollErr = unix.POLLERR
	pollHup = unix.POLLHUP
)

// hungUp returns how the peer of the socket fd has ended the connection: POLLRDHUP if it shut down
// its side, POLLHUP or POLLERR if it is gone, else 0.
func hungUp(fd uintptr) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
		return 0
	}
	return fds[0].Revents
}
