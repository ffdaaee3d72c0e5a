package http1

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// many is the number of connections from which on those of refused clients wait in loops. The stacks of fewer
// goroutines stay in the cache, and each wait takes a system call less.
const many = 256

// A loop is a goroutine in which many connections of refused clients wait for their next requests. It answers those on
// one stack, which stays in the cache (refuse, 1,000 connections). A connection leaves its loop when it needs to wait
// for anything else: for an origin, for the rest of a request, or for its client to read. It takes the goroutine with
// it, and another one leads the loop. So connections in a loop belong to the goroutine that leads it.
type loop struct {
	server *Server
	file   *os.File        // an epoll instance; Go's poller waits for it
	raw    syscall.RawConn // of file
	gate   *os.File        // an eventfd in it; writing to it makes the poller report the epoll instance

	waits   func(epoll uintptr) bool // wait as a value
	events  [64]unix.EpollEvent
	next, n int  // events[next:n] are to be served
	polled  bool // the poller has run since events were taken
	rushes  bool // events were taken twice without that: see wait

	mu      sync.Mutex      // guards the following
	conns   map[int32]*Conn // by socket
	closing bool            // ends with its last connection
}

// loops are the loops of a server, one for each core. There are none before there are many connections.
type loops struct {
	many int32 // for tests; 0 for many

	mu     sync.Mutex // guards the following
	all    []*loop
	closed bool
}

// sweepEvery is the interval in which a loop ends connections that have waited for too long.
const sweepEvery = time.Second

// isCrowded reports whether there are many connections.
func (s *Server) isCrowded() bool { return s.open.Load() >= cmp.Or(s.loops.many, many) }

// join makes c wait in a loop, to which it belongs from then on, and reports whether it does. c must be ready to wait.
func (c *Conn) join() (joined bool) {
	ls := &c.server.loops
	ls.mu.Lock()
	for len(ls.all) < runtime.GOMAXPROCS(0) && !ls.closed {
		l := newLoop(c.server)
		if l == nil {
			break
		}
		ls.all = append(ls.all, l)
	}
	all := ls.all
	ls.mu.Unlock()
	_ = c.raw.Control(func(fd uintptr) { joined = len(all) > 0 && all[int(fd)%len(all)].add(c, int32(fd)) })
	return joined
}

// newLoop starts a loop. It returns nil if the system has none.
func newLoop(s *Server) *loop {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	_ = unix.SetNonblock(fd, true)
	l := &loop{server: s, file: os.NewFile(uintptr(fd), "epoll"), conns: map[int32]*Conn{}}
	l.waits = l.wait
	gate, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		l.gate = os.NewFile(uintptr(gate), "eventfd")
		if l.raw, err = l.file.SyscallConn(); err == nil {
			err = l.watch(int32(gate))
		}
	}
	if err != nil {
		l.end()
		return nil
	}
	go s.run(nil, l)
	return l
}

// close ends the loops as soon as they have no connections. No connection can join any more.
func (ls *loops) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.all {
		l.mu.Lock()
		l.closing = true
		l.endUnused()
		l.mu.Unlock()
	}
}

// endUnused ends l if it is closing and has no connections. mu is held.
func (l *loop) endUnused() {
	if l.closing && len(l.conns) == 0 {
		l.end()
	}
}

func (l *loop) end() {
	_ = l.file.Close()
	_ = l.gate.Close()
}

// add adds c, whose socket is fd, and reports whether it did.
func (l *loop) add(c *Conn, fd int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	c.loop, c.fd, c.blocks, c.size, c.reports = l, fd, c.leave, smallBuffer, false
	if l.watch(fd) != nil {
		c.loop, c.blocks = nil, nil
		return false
	}
	if len(l.conns) == 0 {
		_ = l.file.SetReadDeadline(time.Now().Add(sweepEvery))
	}
	l.conns[fd] = c
	return true
}

// watch makes fd's becoming readable an event of l.
func (l *loop) watch(fd int32) error {
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)
	return l.control(unix.EPOLL_CTL_ADD, &unix.EpollEvent{Events: events, Fd: fd})
}

// control adds a socket to the epoll instance or removes it.
func (l *loop) control(op int, e *unix.EpollEvent) (err error) {
	ended := l.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, int(e.Fd), e) })
	return errors.Join(ended, err)
}

// leave makes c wait in its own goroutine, the one that calls leave, from now on. If c is in a loop, the goroutine must
// lead it, which another one does from now on.
func (c *Conn) leave() {
	l := c.loop
	if l == nil {
		return
	}
	l.mu.Lock()
	delete(l.conns, c.fd)
	_ = l.control(unix.EPOLL_CTL_DEL, &unix.EpollEvent{Fd: c.fd})
	l.endUnused()
	l.mu.Unlock()
	c.loop, c.blocks, c.edge, c.readBy = nil, nil, false, time.Time{}
	go l.server.run(nil, l)
}

// lead serves the connections of l until one of them leaves: then it sets *c, and reports whether a request of it has
// begun. It sets *c to nil if l has ended.
func (l *loop) lead(c **Conn) (begun bool) {
	serve := func(fd uintptr) { begun = (*c).serveReady(fd) }
	for *c = l.take(); *c != nil; *c = l.take() {
		if (*c).raw.Control(serve) != nil || begun || (*c).loop == nil {
			(*c).leave()
			return begun && (*c).x != nil
		}
	}
	return false
}

// take waits for the next connection that is ready. It returns nil if l has ended.
func (l *loop) take() *Conn {
	for {
		if l.next == l.n {
			err := l.raw.Read(l.waits)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				l.sweep()
				continue
			case err != nil:
				return nil
			}
		}
		e := &l.events[l.next]
		l.next++
		l.mu.Lock()
		c := l.conns[e.Fd]
		l.mu.Unlock()
		if c != nil {
			c.edge = e.Events == unix.EPOLLIN
			return c
		}
	}
}

// wait takes events from the epoll instance, and reports whether there were any. As long as a loop finds some without
// waiting, Go's scheduler does not ask the poller what has come for other goroutines. So after such events the loop
// opens the gate and waits for it: the poller reports that after what has come for the others.
func (l *loop) wait(epoll uintptr) bool {
	if l.rushes {
		l.rushes, l.polled = false, true
		_, _ = l.gate.Write(binary.NativeEndian.AppendUint64(nil, 1))
		return false
	}
	n, _, _ := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&l.events)),
		uintptr(len(l.events)), 0, 0, 0)
	l.next, l.n = 0, max(int(n), 0)
	l.rushes = l.n > 0 && !l.polled
	l.polled = l.n == 0
	return l.n > 0
}

// sweep ends the connections that have waited for too long.
func (l *loop) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, c := range l.conns {
		if c.readBy.Before(now) {
			c.endIn(idle)
		}
	}
	if len(l.conns) > 0 {
		now = now.Add(sweepEvery)
	} else {
		now = time.Time{}
	}
	_ = l.file.SetReadDeadline(now)
}
