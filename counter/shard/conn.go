package shard

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	// maxLine is the maximum length of a command, in bytes. Nodes read at most 64 items with one command.
	maxLine = 16 << 10

	// flushSize is how many bytes of replies are collected before they are sent.
	flushSize = 16 << 10

	// maxKeptWords is the maximum number of words of a command for which memory is kept.
	maxKeptWords = 128

	// version begins with the version of memcached that the shard behaves like.
	version = "1.6.18-edge"

	badFormat = "CLIENT_ERROR bad command line format"
)

// A conn is a client's connection, used by one goroutine. Replies to commands that arrive
// together are sent together.
type conn struct {
	*Server
	net net.Conn
	in  *bufio.Reader // reads by conn.Read, which first sends the replies
	out []byte        // replies that are not yet sent

	// Of the current command:
	words   [][]byte // including the name
	noreply bool
	key     [maxKey]byte
}

// Read reads from the client, which may be waiting for the replies.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.net.Read(p)
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.net.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 4*flushSize {
		c.out = nil
	}
	return err
}

// serve executes the client's commands until the connection ends.
func (c *conn) serve() {
	for {
		line, err := c.in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			c.noreply = false
			c.reply("CLIENT_ERROR line too long")
		}
		if err != nil {
			break
		}
		line = bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
		if !c.execute(line, c.store.clock(time.Now())) || len(c.out) >= flushSize && c.flush() != nil {
			break
		}
	}
	_ = c.flush()
}

// execute executes a command at now, and reports whether the connection continues.
func (c *conn) execute(line []byte, now int64) bool {
	c.words = c.words[:0]
	for word := range bytes.SplitSeq(line, []byte(" ")) {
		if len(word) > 0 {
			c.words = append(c.words, word)
		}
	}
	c.noreply = false
	if len(c.words) == 0 {
		c.reply("ERROR")
		return true
	}
	name, n := string(c.words[0]), len(c.words)
	if name == "get" || name == "gets" {
		more := c.get(name == "gets", now)
		if cap(c.words) > maxKeptWords {
			c.words = nil
		}
		return more
	}
	c.noreply = string(c.words[n-1]) == "noreply" && (n > 2 || name == "flush_all") // a key may be called noreply
	switch {
	case name == "set" && (n == 5 || n == 6), name == "add" && (n == 5 || n == 6), name == "cas" && (n == 6 || n == 7):
		return c.set(name, now)
	case name == "incr" && (n == 3 || n == 4):
		c.incr(now)
	case name == "delete" && n >= 2 && n <= 4:
		c.delete(now)
	case name == "flush_all" && n <= 3:
		c.flushAll()
	case name == "stats":
		c.noreply = false // stats has no such option
		c.stats()
	case name == "version":
		c.noreply = false
		c.reply("VERSION " + version)
	case name == "quit":
		return false
	case bytes.HasPrefix(c.words[n-1], []byte("HTTP/")):
		return false // a web page must not make a browser talk to the shard
	default:
		c.noreply = false
		c.reply("ERROR")
	}
	return true
}

// reply answers with a line, unless the command has noreply.
func (c *conn) reply(line string) {
	if !c.noreply {
		c.out = append(append(c.out, line...), "\r\n"...)
	}
}

// get answers get and gets.
func (c *conn) get(withCAS bool, now int64) bool {
	if len(c.words) == 1 {
		c.reply("ERROR")
		return true
	}
	for _, key := range c.words[1:] {
		if len(key) > maxKey {
			c.reply(badFormat)
			return true
		}
		c.out = c.store.get(c.out, key, withCAS, now)
		if len(c.out) >= flushSize && c.flush() != nil {
			return false
		}
	}
	c.reply("END")
	return true
}

// set answers set, add and cas.
func (c *conn) set(name string, now int64) bool {
	key := append(c.key[:0], c.words[1][:min(len(c.words[1]), maxKey)]...) // reading the value overwrites the line
	flags, flagsOK := parseUint(c.words[2], 32)
	exptime, timeErr := strconv.ParseInt(string(c.words[3]), 10, 32)
	size, sizeOK := parseUint(c.words[4], 30)
	cas, casOK := uint64(0), true
	if name == "cas" {
		cas, casOK = parseUint(c.words[5], 64)
	}
	if len(c.words[1]) > maxKey || !flagsOK || timeErr != nil || !sizeOK || !casOK {
		c.reply(badFormat)
		return true
	}
	if int(size) > c.store.maxValue {
		c.reply("SERVER_ERROR object too large for cache")
		if name == "set" {
			c.store.drop(key) // clients must not take the old value for the new one
		}
		_, err := c.in.Discard(int(size) + len("\r\n"))
		return err == nil
	}
	value, err := c.value(int(size) + len("\r\n"))
	if err != nil {
		return false
	}
	if !bytes.HasSuffix(value, []byte("\r\n")) {
		c.store.malformed(key)
		c.reply("CLIENT_ERROR bad data chunk")
		return true
	}
	c.reply(c.store.set(name, key, meta{c.store.deadline(exptime, now), cas, uint32(flags)}, value[:size], now))
	return true
}

// value returns the next n bytes, which are valid until the next read. It allocates memory as they arrive, not when
// their size is announced.
func (c *conn) value(n int) ([]byte, error) {
	if n <= c.in.Size() {
		value, err := c.in.Peek(n)
		if err == nil {
			_, err = c.in.Discard(n)
		}
		return value, err
	}
	var long bytes.Buffer
	_, err := io.CopyN(&long, c.in, int64(n))
	return long.Bytes(), err
}

// incr answers incr.
func (c *conn) incr(now int64) {
	by, ok := parseUint(c.words[2], 64)
	switch {
	case len(c.words[1]) > maxKey:
		c.reply(badFormat)
		return
	case !ok:
		c.reply("CLIENT_ERROR invalid numeric delta argument")
		return
	}
	value, problem := c.store.incr(c.words[1], by, now)
	switch {
	case problem != "":
		c.reply(problem)
	case !c.noreply:
		c.out = append(strconv.AppendUint(c.out, value, 10), "\r\n"...)
	}
}

// delete answers delete.
func (c *conn) delete(now int64) {
	switch n := len(c.words); {
	case n == 4 || n == 3 && !c.noreply:
		c.reply(badFormat + ".  Usage: delete <key> [noreply]")
	case len(c.words[1]) > maxKey:
		c.reply(badFormat)
	case c.store.delete(c.words[1], now):
		c.reply("DELETED")
	default:
		c.reply("NOT_FOUND")
	}
}

// flushAll answers flush_all.
func (c *conn) flushAll() {
	c.flushes.Add(1)
	if n := len(c.words); (n == 3 || n == 2 && !c.noreply) && string(c.words[1]) != "0" {
		c.reply("CLIENT_ERROR invalid exptime argument")
		return
	}
	c.store.flush()
	c.reply("OK")
}

// parseUint parses an unsigned decimal number of at most bits bits.
func parseUint(text []byte, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 10, bits)
	return n, err == nil
}
