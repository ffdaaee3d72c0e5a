// The functions in this file only save system calls, of the engine and of Go's poller. Their comments name cases of
// bench/http that measure the gain; so does BenchmarkEngine in package proxy.

package http1

import (
	"io"
	"os"
	"syscall"
	"time"
)

// serveReady reads from the socket fd and serves the requests that have arrived. It reports whether serve must take
// over: the head or the body of a request is incomplete, the connection ends, or it should join a loop.
//
// A request costs one read and one write. serveReady waits for the next request in the same poller call in which it has
// emptied the socket, so it misses no event. If it returned for each request, it would have to try another read before
// it waits (refuse).
func (c *Conn) serveReady(fd uintptr) bool {
	for {
		if !c.readReady(fd) {
			return false
		}
		empty := c.empty
		if !c.resume() {
			c.err = errClosed
		}
		for c.err == nil && c.r < c.w {
			if !c.next() {
				c.err = errClosed
				break
			}
			x := c.x
			x.scanned, x.malformed = x.req.scan(c.buffered(), c.server.o.MaxHeaderBytes)
			if !x.scanned || x.malformed != nil || x.req.Body != NoBody || x.req.Upgrade {
				return true
			}
			c.handle(x)
			if c.closing {
				return true
			}
			c.discard()
		}
		if c.err == nil {
			c.err = c.flush()
		}
		if c.err == nil && !c.rest() {
			c.err = errClosed
		}
		if c.err != nil {
			return true
		}
		if empty {
			return c.loop == nil && c.refused && c.server.isCrowded()
		}
		c.leave() // a client that keeps sending must not delay the other connections of the loop
		c.reports = c.reports || reportEmpty(fd)
	}
}

// readReady reads from the socket fd, and reports whether there is a result. It keeps a buffer only if so: idle
// connections hold none (refuse, 1,000 connections).
func (w *wire) readReady(fd uintptr) bool {
	b := newBuffer(w.size)
	for {
		var n int
		var err syscall.Errno
		w.empty = false
		if w.reports {
			n, w.empty, err = receive(fd, b)
		} else {
			n, err = readSocket(fd, b)
			w.empty = w.edge && n < len(b)
		}
		switch {
		case err == syscall.EINTR:
			continue
		case err == 0 && n > 0:
			w.in, w.r, w.w, w.err = b, 0, n, nil
			return true
		}
		freeBuffer(b)
		switch err {
		case 0:
			w.err = io.EOF
		case syscall.EAGAIN:
			return false
		default:
			w.err = os.NewSyscallError("read", err)
		}
		return true
	}
}

// ask writes data and reads the beginning of an answer, like more. n is the number of bytes written.
func (w *wire) ask(data []byte, size int) (n int, err error) {
	if w.raw == nil {
		if n, err = w.write(data); err == nil {
			err = w.more(size)
		}
		return n, err
	}
	w.data = data
	err = w.await(w.asks, size)
	n, w.data = len(data)-len(w.data), nil
	if err != nil || n == len(data) {
		return n, err
	}
	more, err := w.write(data[n:]) // the part that the socket did not take in one write
	if err == nil {
		err = w.more(size)
	}
	return n + more, err
}

// askReady writes to the socket fd in the first call and does not read: there is no answer yet, and the read would cost
// as much as a useful one. It misses nothing: the poller has forgotten earlier events before the first call, and
// reports every later one. A peer that closed its side before then resets the connection when it gets the request,
// which is an event, too (pass, 128 bytes).
func (w *wire) askReady(fd uintptr) bool {
	if len(w.data) == 0 {
		return w.readReady(fd)
	}
	w.err = nil
	w.writeReady(fd)
	return len(w.data) > 0
}

// writeReady writes as much of w.data as the socket fd accepts.
func (w *wire) writeReady(fd uintptr) {
	n, err := writeSocket(fd, w.data)
	switch err {
	case 0:
		w.data = w.data[n:]
	case syscall.ECONNRESET:
		w.reset = true // the next write returns another error
	}
}

// moreNow reads bytes that have arrived, as far as the buffer has room, and reports whether there were any. It saves a
// goroutine for short bodies.
func (w *wire) moreNow() bool {
	n := 0
	if w.raw != nil {
		_ = w.raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), w.in[w.w:]) // the next read returns the same error
			return true
		})
	}
	w.w += max(n, 0)
	return n > 0
}

// slack bounds how early a timeout may expire: by 1/slack of it. Moving a deadline with every request would cost more
// than it is worth (pass, 128 bytes).
const slack = 8

// setReadDeadline makes reads time out at now + timeout, or up to an eighth of timeout earlier.
func (w *wire) setReadDeadline(now time.Time, timeout time.Duration) {
	if by := now.Add(timeout); by.Before(w.readBy) || by.Sub(w.readBy) > timeout/slack {
		w.readBy = by
		_ = w.conn.SetReadDeadline(by)
	}
}

// wakeWithin makes reads time out between now + timeout/slack and now + timeout. The caller must repeat a read that
// times out too early. If many connections take turns, setReadDeadline would move a deadline with nearly every request.
func (w *wire) wakeWithin(now time.Time, timeout time.Duration) {
	if left := w.readBy.Sub(now); left < timeout/slack || left > timeout {
		w.readBy = now.Add(timeout)
		_ = w.conn.SetReadDeadline(w.readBy)
	}
}

// setWriteDeadline makes writes time out at now + timeout, or up to an eighth of timeout earlier.
func (w *wire) setWriteDeadline(now time.Time, timeout time.Duration) {
	if by := now.Add(timeout); by.Before(w.writeBy) || by.Sub(w.writeBy) > timeout/slack {
		w.writeBy = by
		_ = w.conn.SetWriteDeadline(by)
	}
}
