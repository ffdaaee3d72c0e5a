package shard

import (
	"bytes"
	"strings"
	"time"
)

// version is what the version command and stats answer. It begins with the
// version of memcached whose behaviour the shard has.
const version = "1.6.18-edge"

// maxTokens is how many words of a command line are looked at. Only get and gets
// may have more.
const maxTokens = 23

const badFormat = "CLIENT_ERROR bad command line format"

// exec carries out the command in line, which has no line end. The reply goes
// to c.out. The methods that answer a command get its number of words, n.
func (c *conn) exec(line []byte, now time.Time) {
	c.noreply = false
	if i := bytes.IndexByte(line, 0); i >= 0 {
		line = line[:i] // as a C string ends
	}
	name, rest := nextToken(line)
	if len(name) < 2 {
		c.reply("ERROR")
		return
	}
	switch string(name) {
	case "get", "gets":
		if first, _ := nextToken(rest); len(first) == 0 {
			c.reply("ERROR")
			return
		}
		c.get(rest, len(name) == len("gets"), now)
		return
	}

	n := c.tokenize(line)
	switch string(name) {
	case "incr":
		c.arithmetic(n, false, now)
	case "decr":
		c.arithmetic(n, true, now)
	case "set":
		c.update(n, modeSet, now)
	case "add":
		c.update(n, modeAdd, now)
	case "replace":
		c.update(n, modeReplace, now)
	case "cas":
		c.update(n, modeCAS, now)
	case "touch":
		c.touch(n, now)
	case "delete":
		c.delete(n, now)
	case "flush_all":
		c.flushAll(n, now)
	case "stats":
		c.stats(n, now)
	case "version":
		c.reply("VERSION " + version)
	case "verbosity":
		c.verbosity(n)
	case "quit":
		c.state = connDone
	default:
		c.unknown(name, c.tokens[n-1])
	}
}

// unknown answers a command that does not exist. A web browser's request is
// not answered: a page must not be able to make one talk to the shard.
func (c *conn) unknown(name, last []byte) {
	// A name with the first letter of a common command was not taken for a
	// browser's by memcached, and is not here.
	common := strings.IndexByte("acdgist", name[0]) >= 0 || name[0] == 'm' && len(name) == 2
	if !common && bytes.HasPrefix(last, []byte("HTTP/")) {
		c.state = connDone
		return
	}
	c.reply("ERROR")
}

// tokenize splits line at spaces into c.tokens and returns their number.
func (c *conn) tokenize(line []byte) int {
	n := 0
	for ; n < maxTokens; n++ {
		if c.tokens[n], line = nextToken(line); len(c.tokens[n]) == 0 {
			break
		}
	}
	c.last = max(0, n-1)
	return n
}

// want reports whether a command has from least to most words. If not, that is
// an ERROR.
func (c *conn) want(n, least, most int) bool {
	if n < least || n > most {
		c.reply("ERROR")
		return false
	}
	return true
}

// noreplyMaybe suppresses the reply to this command if its last word says so,
// errors included.
func (c *conn) noreplyMaybe() bool {
	c.noreply = string(c.tokens[c.last]) == "noreply"
	return c.noreply
}

// flushAll answers flush_all.
func (c *conn) flushAll(n int, now time.Time) {
	if !c.want(n, 1, 3) {
		return
	}
	c.server.flushes.Add(1)
	words := 1
	if c.noreplyMaybe() {
		words = 2
	}
	var exptime int32
	if n != words {
		var ok bool
		if exptime, ok = parseInt32(c.tokens[1]); !ok {
			c.reply("CLIENT_ERROR invalid exptime argument")
			return
		}
	}
	c.store.flush(exptime, now)
	c.reply("OK")
}

// verbosity answers verbosity, which has no effect.
func (c *conn) verbosity(n int) {
	if !c.want(n, 2, 3) {
		return
	}
	c.noreplyMaybe()
	if _, ok := parseUint32(c.tokens[1]); !ok {
		c.reply(badFormat)
		return
	}
	c.reply("OK")
}
