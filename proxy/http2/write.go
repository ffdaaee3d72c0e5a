package http2

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/proxy/conns"
)

// maxFrame is the maximum length of frames, in both directions. Every client must accept it (RFC 9113, 4.2).
const maxFrame = 16 << 10

// maxWaiting is how many bytes may wait to be written before writers block.
const maxWaiting = 64 << 10

// Write appends frames from the Framer to the write buffer. mu must be held.
func (c *Conn) Write(p []byte) (int, error) {
	c.out = append(conns.Grow(c.out, len(p)), p...)
	return len(p), nil
}

// kick writes pending output, unless the reader will do so or another goroutine is writing: answers share writes. It
// reports whether it has written. mu must be held; kick releases it while it writes.
func (c *Conn) kick() bool {
	if c.batch || c.writing || c.out == nil || c.err != nil {
		return false
	}
	c.writing = true
	if c.working > 1 { // let requests that are about to be answered share the write
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for c.out != nil && c.err == nil {
		out := c.out
		c.out, c.wrote = nil, len(c.out)
		if timeout := c.server.o.BodyTimeout; timeout > 0 {
			// Moving the deadline with every write would cost more than it is worth.
			if by := time.Now().Add(timeout); by.Sub(c.writeBy) > timeout/8 {
				c.writeBy = by
				_ = c.conn.SetWriteDeadline(by)
			}
		}
		c.mu.Unlock()
		_, err := c.conn.Write(out)
		conns.FreeBuffer(out)
		c.mu.Lock()
		if err != nil {
			c.err = err
			_ = c.conn.Close() // ends the reader
		}
		c.space.Broadcast()
	}
	c.writing = false
	return true
}

// relieve makes the reader wait while too much output is pending: it does not read from a client that does not read. mu
// must be held; relieve releases it while it waits.
func (c *Conn) relieve() {
	for batch := c.batch; len(c.out) >= maxWaiting && c.err == nil; c.batch = batch {
		c.batch = false
		if !c.kick() {
			c.space.Wait()
		}
	}
}

// frameHead returns the output with a frame's header (RFC 9113, 4.1), to append the payload to. mu must be held.
func (c *Conn) frameHead(length int, kind http2.FrameType, flags http2.Flags, id uint32) []byte {
	out := c.out
	if out == nil {
		out = conns.NewBuffer(c.wrote)[:0] // growing would copy it several times
	}
	out = append(conns.Grow(out, 9+length), byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(out, id)
}

// writeHead writes a header block, which ends the stream if end is set. mu must be held.
func (s *Stream) writeHead(block []byte, end bool) {
	c := s.c
	if !c.tableless {
		// Tell the client that it may free its dynamic table (RFC 7541, 4.2). The node does not use the table, so that
		// blocks do not depend on each other.
		c.tableless = true
		block = append([]byte{0x20}, block...)
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags, s.life = http2.FlagHeadersEndStream, written
	}
	for {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.out = append(c.frameHead(n, kind, flags, s.id), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// writeData writes a DATA frame. The windows must have room for it. mu must be held.
func (s *Stream) writeData(data []byte, end bool) {
	c, flags := s.c, http2.Flags(0)
	if end {
		flags, s.life = http2.FlagDataEndStream, written
	}
	c.out = append(c.frameHead(len(data), http2.FrameData, flags, s.id), data...)
	n := int64(len(data))
	c.window -= n
	s.window -= n
	s.sentBytes += n
}

// send writes data when the windows have room for it and the client has read enough of the earlier output. If end is
// set, the data ends the stream.
func (s *Stream) send(data []byte, end bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	var by time.Time
	for {
		if s.life == dead || c.err != nil {
			return errGone
		}
		n := int(max(0, min(int64(len(data)), maxFrame, s.window, c.window)))
		if len(c.out) < maxWaiting && (n > 0 || len(data) == 0) {
			s.writeData(data[:n], end && n == len(data))
			c.earn(n, n == len(data) || n == maxFrame)
			if data = data[n:]; len(data) == 0 {
				return nil
			}
			continue
		}
		if c.kick() {
			continue // the windows may have changed
		}
		if timeout := c.server.o.BodyTimeout; timeout > 0 && by.IsZero() {
			// One deadline applies to all of data: a client gains no time by opening its window bit by bit.
			by = time.Now().Add(timeout)
		}
		room := &c.space
		if s.window <= 0 && len(data) > 0 {
			room = &s.more // only the window of this stream wakes it
		}
		if !c.wait(room, by) {
			c.reset(s.id, http2.ErrCodeCancel)
			return errGone
		}
	}
}

// wait waits for cond until by, unless that is zero. It returns false if by has already passed. mu must be held.
func (c *Conn) wait(cond *sync.Cond, by time.Time) bool {
	if by.IsZero() {
		cond.Wait()
		return true
	}
	left := time.Until(by)
	if left <= 0 {
		return false
	}
	timer := time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		cond.Broadcast()
	})
	cond.Wait()
	timer.Stop()
	return true
}

// reset ends the stream with this id. mu must be held.
func (c *Conn) reset(id uint32, code http2.ErrCode) {
	if s := c.streams[id]; s != nil {
		c.lose(s)
	}
	_ = c.fr.WriteRSTStream(id, code)
	c.resets[c.nextReset%len(c.resets)] = id
	c.nextReset++
}

// lose removes s from the streams of c, because it is over for the client. mu must be held.
func (c *Conn) lose(s *Stream) {
	s.life = dead
	delete(c.streams, s.id)
	s.more.Broadcast()
	c.space.Broadcast()
	s.leave()
}

// staticNames are the fields of answers in the static table (RFC 7541, appendix A).
var staticNames = map[string]byte{
	"accept-ranges": 18, "access-control-allow-origin": 20, "age": 21, "allow": 22, "cache-control": 24,
	"content-disposition": 25, "content-encoding": 26, "content-language": 27, "content-length": 28,
	"content-location": 29, "content-range": 30, "content-type": 31, "date": 33, "etag": 34, "expires": 36,
	"last-modified": 44, "link": 45, "location": 46, "retry-after": 53, "server": 54, "set-cookie": 55,
	"strict-transport-security": 56, "vary": 59, "via": 60, "www-authenticate": 61,
}

// appendStatus begins a header block with a status.
func appendStatus(dst []byte, status int) []byte {
	switch status {
	case http.StatusOK:
		return append(dst, 0x80|8)
	case http.StatusNotModified:
		return append(dst, 0x80|11)
	}
	return strconv.AppendInt(append(dst, 8, 3), int64(status), 10)
}

// appendField appends a field as a literal without indexing (RFC 7541, 6.2.2), with its name in lower case.
func appendField(dst []byte, name, value []byte) []byte {
	at := len(dst)
	dst = AppendLower(AppendInteger(append(dst, 0), 7, len(name)), name)
	if place := staticNames[string(dst[len(dst)-len(name):])]; place > 0 {
		dst = AppendInteger(dst[:at], 4, int(place))
	}
	return append(AppendInteger(dst, 7, len(value)), value...)
}

// AppendLower appends a field's name in lower case.
func AppendLower(dst, name []byte) []byte {
	at := len(dst)
	dst = append(dst, name...)
	for i, b := range dst[at:] {
		if 'A' <= b && b <= 'Z' {
			dst[at+i] = b + 'a' - 'A'
		}
	}
	return dst
}

// AppendInteger appends n with a prefix of this many bits, after zeros (RFC 7541, 5.1).
func AppendInteger(dst []byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(dst, byte(n))
	}
	dst = append(dst, byte(most))
	for n -= most; n >= 128; n >>= 7 {
		dst = append(dst, byte(n)|128)
	}
	return append(dst, byte(n))
}

// AppendLines appends the fields in lines of HTTP/1.1, each of which ends in CRLF. field appends each of them.
func AppendLines(dst, lines []byte, field func(dst, name, value []byte) []byte) []byte {
	for len(lines) > 0 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, crlf)
		if colon := bytes.IndexByte(line, ':'); colon > 0 {
			dst = field(dst, line[:colon], bytes.TrimLeft(line[colon+1:], " "))
		}
	}
	return dst
}

var crlf = []byte("\r\n")
