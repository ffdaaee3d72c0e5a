package shard

import (
	"bytes"
	"time"
)

// version is the version reported by the version command and stats. It begins
// with the version of memcached that the shard behaves like.
const version = "1.6.18-edge"

// maxTokens is the maximum number of words parsed in a command line. Only get
// and gets may have more.
const maxTokens = 23

const (
	badFormat  = "CLIENT_ERROR bad command line format"
	badExptime = "CLIENT_ERROR invalid exptime argument"
)

// exec executes the command in line, which has no line end, and appends the
// reply to c.out.
func (c *conn) exec(line []byte, now time.Time) {
	c.noreply = false
	name, rest := nextToken(line)
	if len(name) < 2 {
		c.reply("ERROR")
		return
	}
	if cas := string(name) == "gets"; cas || string(name) == "get" {
		c.get(rest, cas, now)
		return
	}
	c.tokenize(line)
	for i := range commands {
		switch command := &commands[i]; {
		case command.name != string(name):
			continue
		case c.words < command.least || c.words > command.most:
			c.reply("ERROR")
		default:
			command.run(c, now)
		}
		return
	}
	c.unknown()
}

// commands are all commands except get and gets, with their number of words, including the name.
var commands = [...]struct {
	name        string
	least, most int
	run         func(c *conn, now time.Time)
}{
	{"incr", 3, 4, func(c *conn, now time.Time) { c.arithmetic(false, now) }},
	{"decr", 3, 4, func(c *conn, now time.Time) { c.arithmetic(true, now) }},
	{"set", 5, 6, func(c *conn, now time.Time) { c.update(modeSet, now) }},
	{"add", 5, 6, func(c *conn, now time.Time) { c.update(modeAdd, now) }},
	{"replace", 5, 6, func(c *conn, now time.Time) { c.update(modeReplace, now) }},
	{"cas", 6, 7, func(c *conn, now time.Time) { c.update(modeCAS, now) }},
	{"touch", 3, 4, (*conn).touch},
	{"delete", 2, 4, (*conn).delete},
	{"flush_all", 1, 3, (*conn).flushAll},
	{"stats", 1, maxTokens, (*conn).stats},
	{"version", 1, maxTokens, func(c *conn, _ time.Time) { c.reply("VERSION " + version) }},
	{"verbosity", 2, 3, (*conn).verbosity},
	{"quit", 1, maxTokens, func(c *conn, _ time.Time) { c.closed = true }},
}

// unknown answers a command that does not exist. A web browser's request is
// not answered: a page must not be able to make one talk to the shard.
func (c *conn) unknown() {
	if bytes.HasPrefix(c.tokens[c.words-1], []byte("HTTP/")) {
		c.closed = true
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

// verbosity answers verbosity, which has no effect.
func (c *conn) verbosity(time.Time) {
	c.noreplyMaybe()
	if _, ok := parseUint(c.tokens[1], 32); !ok {
		c.reply(badFormat)
		return
	}
	c.reply("OK")
}
