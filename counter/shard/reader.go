package shard

import (
	"bytes"
	"time"
)

const (
	bufferSize = 16 << 10

	// maxLine is the maximum length of a command line. A get may have any number of keys.
	maxLine = 1 << 20
)

// input holds the bytes of a connection that have arrived but are not yet read: buf[r:w]. The
// buffer grows for a long line or value only as its bytes arrive, whatever
// length is announced, and shrinks once they are read.
type input struct {
	buf   []byte
	r, w  int
	first [bufferSize]byte
}

func (in *input) unread() []byte { return in.buf[in.r:in.w] }

// room returns the space for what arrives next. want is how many unread bytes are
// expected in total. Slices of the buffer are no longer valid after it.
func (in *input) room(want int) []byte {
	switch {
	case in.r == in.w:
		in.buf = in.first[:]
		in.r, in.w = 0, 0
	case in.r > 0:
		in.w = copy(in.buf, in.unread())
		in.r = 0
	}
	if in.w == len(in.buf) {
		larger := make([]byte, min(4*len(in.buf), want))
		copy(larger, in.buf)
		in.buf = larger
	}
	return in.buf[in.w:]
}

// fill waits for more bytes, up to want in total. It first sends the replies, which
// the client may be waiting for. It returns false if the connection has failed.
func (c *conn) fill(want int) bool {
	if !c.flush() {
		return false
	}
	room := c.in.room(want)
	// Since the last command, so that a trickle of bytes does not prevent a timeout.
	if c.idle > 0 && c.net.SetReadDeadline(c.commandAt.Add(c.idle)) != nil {
		return c.fail()
	}
	n, err := c.net.Read(room)
	c.in.w += n
	c.server.bytesRead.Add(int64(n))
	if n == 0 && err != nil {
		return c.fail()
	}
	return true
}

// readLine returns the next command line without its end, and false if the
// connection is closed.
func (c *conn) readLine() ([]byte, bool) {
	searched := 0
	for {
		unread := c.in.unread()
		if i := bytes.IndexByte(unread[searched:], '\n'); i >= 0 {
			line := unread[:searched+i]
			c.in.r += len(line) + 1
			if n := len(line); n > 1 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, true
		}
		searched = len(unread)
		if searched > maxLine {
			c.noreply = false // it is the last command's
			c.reply("CLIENT_ERROR line too long")
			c.closed = true
			return nil, false
		}
		if !c.fill(maxLine + 1) {
			return nil, false
		}
	}
}

// readValue returns the next n bytes, which are valid until the next read. It
// returns false if no line end follows them, or if the connection is closed.
func (c *conn) readValue(n int) ([]byte, bool) {
	const end = "\r\n"
	for len(c.in.unread()) < n+len(end) {
		if !c.fill(n + len(end)) {
			return nil, false
		}
	}
	block := c.in.unread()[:n+len(end)]
	c.in.r += len(block)
	return block[:n], string(block[n:]) == end
}

// swallow discards the next n bytes.
func (c *conn) swallow(n int) {
	for {
		skip := min(n, len(c.in.unread()))
		c.in.r += skip
		if n -= skip; n == 0 || !c.fill(n) {
			return
		}
	}
}

// flush sends the replies so far. It returns false if the connection has failed.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	if c.idle > 0 && c.net.SetWriteDeadline(time.Now().Add(c.idle)) != nil {
		return c.fail()
	}
	n, err := c.net.Write(c.out)
	c.server.bytesWritten.Add(int64(n))
	if cap(c.out) > maxKeptOutput {
		c.out = nil
	}
	c.out = c.out[:0]
	if err != nil {
		return c.fail()
	}
	return true
}
