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
// to c.out.
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
	c.tokenize(line)
	least, most := 1, maxTokens // words
	switch string(name) {
	case "incr", "decr", "touch":
		least, most = 3, 4
	case "set", "add", "replace":
		least, most = 5, 6
	case "cas":
		least, most = 6, 7
	case "delete":
		least, most = 2, 4
	case "flush_all":
		least, most = 1, 3
	case "verbosity":
		least, most = 2, 3
	}
	if c.words < least || c.words > most {
		c.reply("ERROR")
		return
	}
	switch string(name) {
	case "incr":
		c.arithmetic(false, now)
	case "decr":
		c.arithmetic(true, now)
	case "set":
		c.update(modeSet, now)
	case "add":
		c.update(modeAdd, now)
	case "replace":
		c.update(modeReplace, now)
	case "cas":
		c.update(modeCAS, now)
	case "touch":
		c.touch(now)
	case "delete":
		c.delete(now)
	case "flush_all":
		c.flushAll(now)
	case "stats":
		c.stats(now)
	case "version":
		c.reply("VERSION " + version)
	case "verbosity":
		c.verbosity()
	case "quit":
		c.state = connDone
	default:
		c.unknown(name)
	}
}

// unknown answers a command that does not exist. A web browser's request is
// not answered: a page must not be able to make one talk to the shard.
func (c *conn) unknown(name []byte) {
	// A name with the first letter of a common command was not taken for a
	// browser's by memcached, and is not here.
	common := strings.IndexByte("acdgist", name[0]) >= 0 || name[0] == 'm' && len(name) == 2
	if !common && bytes.HasPrefix(c.tokens[c.words-1], []byte("HTTP/")) {
		c.state = connDone
		return
	}
	c.reply("ERROR")
}

// tokenize splits line at spaces into c.tokens.
func (c *conn) tokenize(line []byte) {
	n := 0
	for ; n < maxTokens; n++ {
		if c.tokens[n], line = nextToken(line); len(c.tokens[n]) == 0 {
			break
		}
	}
	c.words = n
}

// noreplyMaybe suppresses the reply to this command if its last word says so,
// errors included.
func (c *conn) noreplyMaybe() bool {
	c.noreply = string(c.tokens[c.words-1]) == "noreply"
	return c.noreply
}

// flushAll answers flush_all.
func (c *conn) flushAll(now time.Time) {
	c.server.flushes.Add(1)
	words := 1
	if c.noreplyMaybe() {
		words = 2
	}
	var exptime int32
	if c.words != words {
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
func (c *conn) verbosity() {
	c.noreplyMaybe()
	if _, ok := parseUint32(c.tokens[1]); !ok {
		c.reply(badFormat)
		return
	}
	c.reply("OK")
}
