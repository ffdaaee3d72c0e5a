package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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

// A Socket is a TCP or Unix connection that can leave Go's poller while a loop waits for it. In two epoll instances,
// each event would be handled twice (refuse and pass, 1,000 connections). It returns when a goroutine waits for it.
//
// One goroutine at a time uses it, except that any may call Close and the Control of its RawConn.
type Socket struct {
	local, remote net.Addr

	mu    sync.Mutex // held while place changes
	place atomic.Pointer[place]
}

// A place is where the events of a socket are reported.
type place struct {
	net.Conn // in Go's poller; nil while the socket is outside of it
	syscall.RawConn
	file *os.File // outside of Go's poller; nil while the socket is in it
}

// NewSocket returns a Socket for conn, or conn itself if that is not a socket.
func NewSocket(conn net.Conn) net.Conn {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return conn
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return conn
	}
	s := &Socket{local: conn.LocalAddr(), remote: conn.RemoteAddr()}
	s.place.Store(&place{Conn: conn, RawConn: raw})
	return s
}

// detach takes the socket out of Go's poller, and gives it another file descriptor. If the process has none left, the
// socket stays where it is.
func (s *Socket) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.place.Load()
	if from.file != nil {
		return
	}
	fd, err := -1, error(nil)
	_ = from.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if fd < 0 || err != nil {
		return
	}
	_ = unix.SetNonblock(fd, false) // NewFile adds only non-blocking files to the poller
	file := os.NewFile(uintptr(fd), "socket")
	_ = unix.SetNonblock(fd, true)
	raw, _ := file.SyscallConn() // only fails for a nil File
	s.place.Store(&place{RawConn: raw, file: file})
	_ = from.Close()
}

// attach returns the socket to Go's poller, unless it is there. If that fails, the socket is closed.
func (s *Socket) attach() *place {
	if at := s.place.Load(); at.file == nil {
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.place.Load()
	if from.file == nil {
		return from
	}
	conn, err := net.FileConn(from.file)
	if err != nil {
		conn, _ = net.Pipe()
		_ = conn.Close()
	}
	to := &place{Conn: conn, RawConn: from.RawConn}
	if socket, ok := conn.(syscall.Conn); ok {
		to.RawConn, _ = socket.SyscallConn() // only fails for a closed connection
	}
	s.place.Store(to)
	_ = from.file.Close()
	return to
}

func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.place.Load()
	if at.file != nil {
		return at.file.Close()
	}
	return at.Conn.Close()
}

func (s *Socket) Read(b []byte) (int, error)         { return s.attach().Conn.Read(b) }
func (s *Socket) Write(b []byte) (int, error)        { return s.attach().Conn.Write(b) }
func (s *Socket) LocalAddr() net.Addr                { return s.local }
func (s *Socket) RemoteAddr() net.Addr               { return s.remote }
func (s *Socket) SetDeadline(t time.Time) error      { return s.attach().SetDeadline(t) }
func (s *Socket) SetReadDeadline(t time.Time) error  { return s.attach().SetReadDeadline(t) }
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.attach().SetWriteDeadline(t) }

// ReadFrom lets the kernel copy from one socket to another.
func (s *Socket) ReadFrom(r io.Reader) (int64, error) {
	if from, ok := r.(*Socket); ok {
		r = from.attach().Conn
	}
	return io.Copy(s.attach().Conn, r)
}

// CloseWrite ends the data to the peer.
func (s *Socket) CloseWrite() (err error) {
	ended := s.Control(func(fd uintptr) { err = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	return errors.Join(ended, err)
}

// SetLinger sets SO_LINGER.
func (s *Socket) SetLinger(seconds int) (err error) {
	linger := &unix.Linger{Onoff: 1, Linger: int32(seconds)}
	ended := s.Control(func(fd uintptr) {
		err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, linger)
	})
	return errors.Join(ended, err)
}

func (s *Socket) SyscallConn() (syscall.RawConn, error) { return rawSocket{s}, nil }

// A rawSocket is the RawConn of a Socket, in and outside of the poller.
type rawSocket struct{ *Socket }

func (r rawSocket) Read(ready func(fd uintptr) bool) error  { return r.attach().RawConn.Read(ready) }
func (r rawSocket) Write(ready func(fd uintptr) bool) error { return r.attach().RawConn.Write(ready) }

// Control also works while another goroutine moves the socket.
func (s *Socket) Control(use func(fd uintptr)) error {
	for {
		at := s.place.Load()
		if err := at.Control(use); err == nil || s.place.Load() == at {
			return err
		}
	}
}

// detach takes w out of Go's poller if that is possible, and returns its file descriptor. That removes the
// deadlines of the socket; the caller must set readBy.
func (w *wire) detach() (fd int32) {
	if raw, ok := w.raw.(rawSocket); ok {
		raw.detach()
	}
	w.writeBy = time.Time{}
	_ = w.raw.Control(func(socket uintptr) { fd = int32(socket) })
	return fd
}
