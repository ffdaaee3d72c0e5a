package memcached

import (
	"bytes"
	"errors"
	"net"
	"strconv"
)

// maxStored is the maximum size of a value that gomemcache reads, in bytes. The list of drained shards is the longest.
const maxStored = 1 << 17

var errReplySize = errors.New("the reply is too long")

// A boundedConn refuses to read a value that is too long, or a second value. gomemcache allocates the size in a VALUE
// line, up to 4 GiB, before it reads the value, and reads values for as long as they arrive. Only lines are bounded by
// gomemcache itself.
type boundedConn struct {
	net.Conn
	line []byte // the current line so far
	data int    // bytes left of the current value
	full bool   // the answer to the last command has its only value
}

func (c *boundedConn) Write(p []byte) (int, error) {
	c.full = false
	return c.Conn.Write(p)
}

func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if c.data > 0 {
			skip := min(c.data, len(rest))
			c.data -= skip
			rest = rest[skip:]
			continue
		}
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		c.line = append(c.line, line...)
		rest = after
		if !whole {
			break
		}
		// gomemcache separates fields by single spaces, so a name may be empty or contain a tab.
		fields := bytes.Split(bytes.TrimSuffix(c.line, []byte("\r")), []byte(" "))
		if len(fields) > 3 && string(fields[0]) == "VALUE" {
			size, err := strconv.Atoi(string(fields[3]))
			if err != nil || size > maxStored || c.full {
				return 0, errReplySize
			}
			c.data, c.full = size+len("\r\n"), true
		}
		c.line = c.line[:0]
	}
	return n, err
}
