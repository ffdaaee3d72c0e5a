package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// Sizes of buffers, in bytes.
const (
	smallBuffer = 4 << 10  // for heads; grows for larger ones
	largeBuffer = 32 << 10 // for bodies
	copied      = 8 << 10  // larger data is written without copying it, if no output waits before it
)

// A wire is a connection with its buffers. One goroutine may read while another writes.
//
// Some of its functions only save system calls, of the engine and of Go's poller.
type wire struct {
	conn net.Conn
	end  syscall.RawConn // the underlying socket, even with TLS; nil for other connections

	patience time.Duration // how long the peer may take to accept written data; 0 for no limit
	writeBy  time.Time     // current deadline of writes
	blocks   func()        // called before a write that may block; may be nil

	// What every request needs comes last, next to what it needs of a Conn: with many connections, those bytes are not in
	// the cache (pass, 128 bytes, 1,000 connections).

	// readReady, askReady, writeReady and probe as values, made once per connection, and their parameters and results.
	reads, asks    func(fd uintptr) bool
	writes, probes func(fd uintptr)
	size           int    // of the buffer to read into
	data           []byte // data that is not written yet
	err            error  // of the last read
	reset          bool   // a write has found that the peer has reset the connection
	reports        bool   // the kernel reports whether a read has emptied the socket
	empty          bool   // the last read has emptied the socket, whose stream has not ended
	edge           bool   // a read that does not fill its buffer has emptied the socket

	raw  syscall.RawConn // nil if conn is not a socket
	in   []byte          // in[r:w] has been read but not used yet
	r, w int
	out  []byte // waits to be written

	readBy time.Time // current deadline of reads
	now    time.Time // about the current time; zero if unknown
}

// init makes w the wire of conn. w must not be copied afterwards.
func (w *wire) init(conn net.Conn, patience time.Duration) {
	w.conn, w.patience = conn, patience
	if socket, ok := conn.(syscall.Conn); ok {
		w.raw, _ = socket.SyscallConn()
	}
	if socket, ok := conns.Underlying(conn).(syscall.Conn); ok {
		w.end, _ = socket.SyscallConn()
	}
	w.reads, w.asks, w.writes, w.probes = w.readReady, w.askReady, w.writeReady, w.probe
}

// ReadNew reads the first bytes of a connection. From a wrapper of a socket, it takes the bytes that the wrapper has
// buffered, so that the engine can read the socket itself. With many new connections, stacks and buffers would take
// most of the memory: while it waits for a socket, it holds no buffer, and its callers should have small frames.
func ReadNew(conn net.Conn) ([]byte, error) {
	w := new(wire)
	w.init(conn, 0)
	if _, ok := conn.(*Socket); !ok {
		w.raw = nil
	}
	err := w.more(smallBuffer)
	return w.buffered(), err
}

// buffered returns the bytes that have been read but not used yet.
func (w *wire) buffered() []byte { return w.in[w.r:w.w] }

// use marks n buffered bytes as used.
func (w *wire) use(n int) {
	w.r += n
	if w.r == w.w {
		w.r, w.w = 0, 0
	}
}

// more reads up to size bytes and appends them to the buffered ones. If nothing is buffered, it holds no buffer while
// it waits.
func (w *wire) more(size int) error {
	if w.r < w.w || w.raw == nil {
		return w.fill(size)
	}
	return w.await(w.reads, size)
}

// await makes the poller call ready until it returns true.
func (w *wire) await(ready func(fd uintptr) bool, size int) error {
	w.releaseIn()
	w.size = size
	if err := w.raw.Read(ready); err != nil {
		return err
	}
	return w.err
}

// readReady reads from the socket fd, and reports whether there is a result. It keeps a buffer only if so: idle
// connections hold none (refuse, 1,000 connections).
func (w *wire) readReady(fd uintptr) bool {
	b := conns.NewBuffer(w.size)
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
		conns.FreeBuffer(b)
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

// grow makes room in the read buffer, which then has at least size bytes. A buffer grows only if it is full of unused
// bytes.
func (w *wire) grow(size int) {
	switch {
	case w.r == w.w && len(w.in) < size:
		conns.FreeBuffer(w.in)
		w.in, w.r, w.w = conns.NewBuffer(size), 0, 0
	case w.w == len(w.in) && w.r > 0:
		w.w = copy(w.in, w.in[w.r:w.w])
		w.r = 0
	case w.w == len(w.in):
		more := conns.NewBuffer(max(size, 2*len(w.in)))
		w.w = copy(more, w.in[w.r:w.w])
		w.r = 0
		conns.FreeBuffer(w.in)
		w.in = more
	}
}

// fill reads more and appends it to the buffered bytes.
func (w *wire) fill(size int) error {
	w.grow(size)
	n, err := w.conn.Read(w.in[w.w:])
	w.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// release frees the buffers that are empty.
func (w *wire) release() {
	w.releaseIn()
	if len(w.out) == 0 && w.out != nil {
		conns.FreeBuffer(w.out)
		w.out = nil
	}
}

// close closes the connection and frees the buffers.
func (w *wire) close() {
	_ = w.conn.Close()
	w.r, w.w, w.out = 0, 0, w.out[:0]
	w.release()
}

func (w *wire) releaseIn() {
	if w.r == w.w && w.in != nil {
		conns.FreeBuffer(w.in)
		w.in, w.r, w.w = nil, 0, 0
	}
}

// room returns the write buffer, to append to.
func (w *wire) room() []byte {
	if w.out == nil {
		w.out = conns.NewBuffer(smallBuffer)[:0]
	}
	return w.out
}

// write writes data. The peer must accept it within w.patience.
func (w *wire) write(data []byte) (n int, err error) {
	if w.raw != nil {
		w.data = data
		if err := w.raw.Control(w.writes); err != nil {
			return 0, err
		}
		n, w.data = len(data)-len(w.data), nil
		if n == len(data) {
			return n, nil // the write did not wait, so it needs no deadline
		}
	}
	if w.blocks != nil {
		w.blocks()
	}
	if w.patience > 0 {
		if by := time.Now().Add(w.patience); by.Sub(w.writeBy) > w.patience/slack {
			w.writeBy = by
			_ = w.conn.SetWriteDeadline(by)
		}
	}
	more, err := w.conn.Write(data[n:])
	w.now = time.Time{}
	return n + more, w.noteReset(err)
}

// closeWrite ends the data to the peer. Nothing may be written afterwards.
func (w *wire) closeWrite() {
	if half, ok := w.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // if the peer has closed the connection, the next read returns an error
	}
}

// noteReset returns err, the error of a write, and notes a reset. The kernel reports a reset only once: after it has
// reported it to a write, reads return io.EOF, as if the peer had ended its side.
func (w *wire) noteReset(err error) error {
	w.reset = w.reset || errors.Is(err, syscall.ECONNRESET)
	return err
}

// flush writes the write buffer.
func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.write(w.out)
	w.out = w.out[:0]
	return err
}

// send adds data to the output. It writes large data immediately, but sends a head and a body that have arrived
// together with one write: copying 10 KB is cheaper than a second write.
func (w *wire) send(data []byte) error {
	if n := len(w.out) + len(data); n > largeBuffer || n > copied && len(w.out) == 0 {
		if err := w.flush(); err != nil {
			return err
		}
		_, err := w.write(data)
		return err
	}
	w.out = append(conns.Grow(w.room(), len(data)), data...)
	return nil
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

// interrupt ends a read in another goroutine. readBy must be reset before the next deadline is set.
func (w *wire) interrupt() { _ = w.conn.SetReadDeadline(conns.Past) }

// open reports whether the peer has neither closed the connection nor sent anything. It does not block. If it returns
// false, w must not be used: open may have read data.
func (w *wire) open() bool {
	switch {
	case w.r < w.w:
		return false
	case w.end == nil:
		b, ok := w.conn.(*bridge)
		return !ok || b.open()
	case w.end.Control(w.probes) != nil || w.err != syscall.EAGAIN:
		return false
	case w.raw != nil:
		return true
	}
	// With TLS, data that has left the socket may still be in the connection's buffers.
	w.readBy = time.Time{}
	w.interrupt()
	return IsTimeout(w.fill(smallBuffer))
}

// probe reads a byte from the socket fd, and sets w.err. With TLS, it leaves the byte in the socket.
func (w *wire) probe(fd uintptr) {
	var b [1]byte
	if w.raw == nil {
		_, _, w.err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return
	}
	_, w.err = readSocket(fd, b[:])
}

// awaitEnd waits until the peer has disconnected (gone), or has only shut down its side (gone and half). Meanwhile, no
// other goroutine may read or write, except that a read may wait in await. limitAwaitEnd ends it early. To watch a
// connection that is not a socket, awaitEnd must read from it, so it also returns if the peer sends more.
func (w *wire) awaitEnd() (half, gone bool) {
	if w.end == nil {
		err := w.fill(smallBuffer)
		return false, err != nil && !IsTimeout(err)
	}
	var events int16
	// Every event of the socket wakes both a waiting reader and a waiting writer.
	err := w.end.Write(func(fd uintptr) bool {
		events = hungUp(fd)
		return events != 0
	})
	return err == nil && events&(pollErr|pollHup) == 0, !IsTimeout(err)
}

// limitAwaitEnd makes awaitEnd return at by: never if that is zero, at once if it is past. Then it must be called with
// zero before the next read or write.
func (w *wire) limitAwaitEnd(by time.Time) {
	if w.end == nil {
		w.readBy = time.Time{}
		_ = w.conn.SetReadDeadline(by)
		return
	}
	w.writeBy = time.Time{}
	_ = w.conn.SetWriteDeadline(by)
}

// IsTimeout reports whether err is that of an exceeded deadline.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
