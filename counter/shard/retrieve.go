package shard

import (
	"bytes"
	"strconv"
	"time"
)

// get answers get and gets. args is what follows the name of the command. Items before a key that
// is too long are returned.
func (c *conn) get(args []byte, withCAS bool, now time.Time) {
	clock := c.store.clock(now)
	key, args := nextToken(args)
	if len(key) == 0 {
		c.reply("ERROR")
		return
	}
	for ; len(key) > 0; key, args = nextToken(args) {
		if len(key) > maxKey {
			c.reply(badFormat)
			return
		}
		c.out = c.store.get(c.out, key, withCAS, clock)
		if len(c.out) >= flushSize && !c.flush() {
			return
		}
	}
	c.reply("END")
}

// nextToken returns the first word of b, without leading spaces, and what follows it.
func nextToken(b []byte) (token, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// touch answers touch.
func (c *conn) touch(now time.Time) {
	c.noreplyMaybe()
	key := c.tokens[1]
	if len(key) > maxKey {
		c.reply(badFormat)
		return
	}
	exptime, ok := parseInt(c.tokens[2])
	if !ok {
		c.reply(badExptime)
		return
	}
	if c.store.touch(key, c.store.deadline(exptime, now), c.store.clock(now)) {
		c.reply("TOUCHED")
	} else {
		c.reply("NOT_FOUND")
	}
}

// visit calls visit with the item of key while its stripe s is locked. It reports whether there is
// one, and counts a hit or a miss.
func (st *store) visit(key []byte, now int64, hits, misses counter, visit func(s *stripe, h uint64, i uint32)) bool {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	i := s.find(h, key, now)
	if i == 0 {
		s.counts[misses]++
		return false
	}
	s.counts[hits]++
	visit(s, h, i)
	return true
}

// get appends the VALUE reply for key to dst, if key has an item.
func (st *store) get(dst, key []byte, withCAS bool, now int64) []byte {
	st.visit(key, now, getHits, getMisses, func(s *stripe, _ uint64, i uint32) {
		s.use(i)
		b := s.at(i)
		dst = append(dst, "VALUE "...)
		dst = append(dst, key...)
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, uint64(b.u32(fieldFlags)), 10)
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, uint64(b.valueLen()), 10)
		if withCAS {
			dst = append(dst, ' ')
			dst = strconv.AppendUint(dst, b.u64(fieldCAS), 10)
		}
		dst = append(dst, "\r\n"...)
		dst = append(s.appendValue(dst, i), "\r\n"...)
	})
	return dst
}

// touch sets the deadline of the item of key. It reports whether there is one.
func (st *store) touch(key []byte, deadline, now int64) bool {
	return st.visit(key, now, touchHits, touchMisses, func(s *stripe, _ uint64, i uint32) {
		s.use(i)
		s.at(i).put64(fieldDeadline, uint64(deadline))
	})
}
