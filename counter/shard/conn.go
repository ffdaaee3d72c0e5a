package shard

import (
	"bytes"
	"net"
	"time"
)

const (
	// flushSize is how many bytes of replies are collected before they are sent.
	flushSize = 16 << 10

	// binaryMagic is the first byte of a request in memcached's binary protocol.
	binaryMagic = 0x80

	// maxKeptOutput is the maximum size of a reply buffer that is kept.
	maxKeptOutput = 64 << 10
)

// conn is a connection of a client, used by one goroutine.
type conn struct {
	server *Server
	store  *store
	net    net.Conn
	idle   time.Duration // Options.IdleTimeout

	in        input
	out       []byte    // replies not yet sent
	closed    bool      // to be closed once the replies are sent
	commandAt time.Time // when the last command was read

	// Of the current command:
	noreply bool
	tokens  [maxTokens][]byte
	words   int // number of tokens
	key     [maxKey]byte
}

// serve executes the client's commands until the connection ends. Replies to
// commands that arrive together are sent together.
func (c *conn) serve() {
	c.in.buf = c.in.first[:]
	c.commandAt = time.Now()
	if c.fill(bufferSize) && bytes.HasPrefix(c.in.unread(), []byte{binaryMagic}) {
		return // its client would wait forever for a reply
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

// reply answers with a line, unless the command has noreply.
func (c *conn) reply(line string) {
	if c.noreply {
		return
	}
	c.out = append(append(c.out, line...), "\r\n"...)
}

// fail ends the connection and discards the replies not yet sent. It returns false.
func (c *conn) fail() bool {
	c.closed, c.out = true, nil
	return false
}
