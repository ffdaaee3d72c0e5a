package shard

import (
	"bytes"
	"net"
	"time"
)

const (
	// flushSize is the maximum number of bytes of replies collected before they
	// are sent, not counting the last reply.
	flushSize = 16 << 10

	// binaryMagic is the first byte of a request in memcached's binary protocol.
	binaryMagic = 0x80

	// maxKeptOutput is the size up to which a reply buffer is kept.
	maxKeptOutput = 64 << 10
)

// conn is a connection of a client. Only its own goroutine uses it.
type conn struct {
	server *Server
	store  *store
	net    net.Conn
	idle   time.Duration // Options.IdleTimeout

	in        input
	out       []byte    // replies not yet sent
	closed    bool      // to be closed once the replies are sent
	commandAt time.Time // when the last command was read

	// Of the command being carried out:
	noreply bool
	tokens  [maxTokens][]byte
	words   int // tokens
	key     [maxKey]byte
}

// serve carries out the client's commands until either side is done. The
// replies of commands that arrive together leave together.
func (c *conn) serve() {
	c.in.buf = c.in.first[:]
	c.commandAt = time.Now()
	if c.fill(bufferSize) && bytes.HasPrefix(c.in.unread(), []byte{binaryMagic}) {
		return // its client would wait for ever for a reply to the length it sent
	}
	for !c.closed {
		line, ok := c.readLine()
		if !ok {
			break
		}
		c.commandAt = time.Now()
		c.exec(line, c.commandAt)
		if len(c.out) >= flushSize {
			c.flush()
		}
	}
	c.flush()
}

// reply answers with a line, unless the command wants none.
func (c *conn) reply(line string) {
	if c.noreply {
		return
	}
	c.out = append(append(c.out, line...), "\r\n"...)
}

// fail ends the connection without the replies that are not sent yet. It returns false.
func (c *conn) fail() bool {
	c.closed, c.out = true, nil
	return false
}
