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

// many is the default of Server.many. The stacks of fewer goroutines fit into the cache, and a goroutine needs one
// system call fewer to wait than a loop.
const many = 256

// A loop waits for the next requests of many connections, and for the answers of origins to those that pass. One
// goroutine, the leader, serves them all, so that its stack stays in the cache (refuse and pass, 1,000 connections).
// The leader must not wait for anything else. When a connection has to wait for a connection to an origin, for a slow
// origin, for the rest of a request or an answer, or for its client to read, it leaves the loop: the leader continues
// as that connection's goroutine, and a new goroutine becomes the leader. Only the leader uses the connections of the
// loop.
type loop struct {
	server *Server
	file   *os.File        // the epoll instance, for which the leader waits with Go's poller
	raw    syscall.RawConn // of file
	gate   *os.File        // an eventfd in the epoll instance; see wait

	// Used by the leader:
	waits   func(epoll uintptr) bool // wait as a value
	events  [64]unix.EpollEvent
	next, n int // events[next:n] have not been handled yet
	batches int // number of batches since Go's poller last ran

	mu      sync.Mutex      // guards the fields below
	conns   map[int32]*Conn // by the client's socket, and by that of the origin whose answer it waits for
	closing bool            // the loop ends when it has no connections
}

// loops holds the loops of a server: one per core, created when the first connection joins.
type loops struct {
	slow time.Duration // how long a connection waits for an origin in its loop; if zero, watchAfter

	mu     sync.Mutex // guards the fields below
	all    []*loop
	closed bool
}

// sweepEvery is how often a loop looks for connections that have waited too long.
const sweepEvery = watchAfter

// join adds c, which must be idle, to a loop, and reports whether it did. If so, only the loop's leader may then use c.
func (c *Conn) join() bool {
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
	if len(all) == 0 {
		return false
	}
	fd := c.detach()
	return all[int(fd)%len(all)].add(c, fd)
}

// newLoop starts a loop. It returns nil if the system is out of file descriptors or memory.
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

// close makes each loop end when it has no connections. No connection can join afterwards.
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

// endUnused ends l if it is closing and has no connections. l.mu must be held.
func (l *loop) endUnused() {
	if l.closing && len(l.conns) == 0 {
		l.end()
	}
}

func (l *loop) end() {
	_ = l.file.Close()
	_ = l.gate.Close()
}

// add adds c, whose socket is fd, and reports whether it did: not if l is closing, or the system refuses.
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

// watch adds fd to the epoll instance.
func (l *loop) watch(fd int32) error {
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)
	return l.control(unix.EPOLL_CTL_ADD, &unix.EpollEvent{Events: events, Fd: fd})
}

// control calls epoll_ctl(2).
func (l *loop) control(op int, e *unix.EpollEvent) (err error) {
	ended := l.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, int(e.Fd), e) })
	return errors.Join(ended, err)
}

// leave removes c from its loop, if it is in one. The caller, which must be the leader, becomes c's own goroutine, and
// a new goroutine becomes the leader.
func (c *Conn) leave() {
	if l := c.loop; l != nil {
		l.mu.Lock()
		l.remove(c)
		l.mu.Unlock()
		go l.server.run(nil, l)
	}
}

// remove removes c from l. l.mu must be held.
func (l *loop) remove(c *Conn) {
	delete(l.conns, c.fd)
	if c.awaited != nil {
		delete(l.conns, c.awaited.fd)
	}
	_ = l.control(unix.EPOLL_CTL_DEL, &unix.EpollEvent{Fd: c.fd})
	l.endUnused()
	c.loop, c.blocks, c.edge, c.readBy, c.light = nil, nil, false, time.Time{}, 0
	if c.x != nil {
		c.x.call.blocks = nil
		if oc := c.x.call.oc; oc != nil {
			oc.unwatch()
		}
	}
}

// take removes an idle connection from o's pool and watches it. It returns nil if the pool has no suitable connection.
func (l *loop) take(o *Origin, now time.Time) *originConn {
	oc := o.take(l, now)
	if oc == nil || oc.loop == l {
		return oc
	}
	oc.unwatch()
	oc.fd, oc.readBy = oc.detach(), time.Time{}
	if l.watch(oc.fd) != nil {
		oc.close()
		return nil
	}
	oc.loop, oc.size = l, largeBuffer
	oc.polls = func(fd uintptr) { oc.polled = oc.readReady(fd) }
	return oc
}

// unwatch removes c from the loop that watches it, if any.
func (c *originConn) unwatch() {
	if c.loop != nil {
		_ = c.loop.control(unix.EPOLL_CTL_DEL, &unix.EpollEvent{Fd: c.fd})
		c.loop = nil
	}
}

// awaits makes c wait for oc's answer, or for its client if oc is nil.
func (c *Conn) awaits(oc *originConn) {
	if l := c.loop; l != nil {
		l.mu.Lock()
		if oc != nil {
			l.conns[oc.fd] = c
		} else {
			delete(l.conns, c.awaited.fd)
		}
		l.mu.Unlock()
	}
	c.awaited = oc
}

// lead serves the connections of l until one of them leaves. It stores that connection in *c, and reports whether a
// request has begun on it. If l ends, *c is nil. While lead serves a connection, *c is that connection, for a caller
// that recovers from a panic. Connections that end do not leave: a new goroutine for each would cost more than closing
// it.
func (l *loop) lead(c **Conn) (begun bool) {
	serve := func(fd uintptr) { begun = (*c).serveReady(fd) }
	for *c = l.ready(); *c != nil; *c = l.ready() {
		switch err := (*c).raw.Control(serve); {
		case (*c).loop != nil && (*c).err != nil:
			l.mu.Lock()
			l.remove(*c)
			l.mu.Unlock()
			(*c).end()
		case err != nil || begun || (*c).loop == nil:
			(*c).leave()
			return begun && (*c).x != nil
		}
	}
	return false
}

// ready returns the next connection with an event, and waits for an event if necessary. If l has ended, it returns nil.
func (l *loop) ready() *Conn {
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
		switch whole := e.Events == unix.EPOLLIN; {
		case c == nil:
			continue
		case e.Fd != c.fd:
			c.awaited.edge = whole
		case c.awaited != nil && whole:
			c.empty = false // the client has sent more, to be read when the exchange has ended
			continue
		default:
			c.edge = whole
		}
		return c
	}
}

// wait takes a batch of events from the epoll instance, and reports whether there were any.
//
// While the leader finds events without having to wait, Go's scheduler does not run the poller, and goroutines that
// wait for other sockets starve. So after two such batches, wait opens the gate and returns false. The leader then
// waits until the poller reports the gate, after all sockets that became ready before it.
func (l *loop) wait(epoll uintptr) bool {
	if l.batches == 2 {
		l.batches = 0
		_, _ = l.gate.Write(binary.NativeEndian.AppendUint64(nil, 1))
		return false
	}
	n, _, _ := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&l.events)),
		uintptr(len(l.events)), 0, 0, 0)
	l.next, l.n = 0, max(int(n), 0)
	if l.n == 0 {
		l.batches = 0
		return false
	}
	l.batches++
	return true
}

// sweep closes connections that have timed out. Those that wait for a slow origin leave the loop.
func (l *loop) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for fd, c := range l.conns {
		switch {
		case fd != c.fd:
		case c.awaited == nil && c.readBy.Before(now):
			c.endIn(c.state.Load())
		case c.awaited != nil && now.Sub(c.x.call.now) > cmp.Or(l.server.loops.slow, watchAfter):
			l.remove(c)
			go l.server.run(c, nil)
		}
	}
	if len(l.conns) > 0 {
		now = now.Add(sweepEvery)
	} else {
		now = time.Time{}
	}
	_ = l.file.SetReadDeadline(now)
}
