package shard

import (
	"bytes"
	"strconv"
	"time"
)

// get answers get, gets, gat and gats: args is what follows the name of the
// command. A key that is too long spoils the whole command, but the keys before
// it have been counted and touched by then.
func (c *conn) get(args []byte, withCAS, touch bool, now time.Time) {
	r := retrieval{withCAS: withCAS, touch: touch, clock: c.store.clock(now)}
	if touch {
		var exptime []byte
		exptime, args = nextToken(args)
		n, ok := parseInt32(exptime)
		if !ok {
			c.reply("CLIENT_ERROR invalid exptime argument")
			return
		}
		r.deadline = c.store.deadline(n, now)
	}
	spoilt := len(args) > maxKey && hasLongToken(args)
	for {
		var key []byte
		key, args = nextToken(args)
		if len(key) == 0 {
			c.reply("END")
			return
		}
		if len(key) > maxKey {
			c.reply(badFormat)
			return
		}
		before := len(c.out)
		c.out = c.store.get(c.out, key, r)
		if spoilt {
			c.out = c.out[:before]
		}
		if len(c.out) >= flushSize && !c.flush() {
			return
		}
	}
}

func hasLongToken(args []byte) bool {
	for {
		var token []byte
		token, args = nextToken(args)
		if len(token) == 0 || len(token) > maxKey {
			return len(token) > maxKey
		}
	}
}

// nextToken returns what comes before the first space in b that is not leading,
// and what comes after.
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
func (c *conn) touch(n int, now time.Time) {
	if !c.want(n, 3, 4) {
		return
	}
	c.noreplyMaybe()
	key := c.tokens[1]
	if len(key) > maxKey {
		c.reply(badFormat)
		return
	}
	exptime, ok := parseInt32(c.tokens[2])
	if !ok {
		c.reply("CLIENT_ERROR invalid exptime argument")
		return
	}
	if c.store.touch(key, c.store.deadline(exptime, now), c.store.clock(now)) {
		c.reply("TOUCHED")
	} else {
		c.reply("NOT_FOUND")
	}
}

// retrieval is what is asked about each key of a get.
type retrieval struct {
	withCAS  bool
	touch    bool
	deadline int64 // what to change the item's to, if touch
	clock    int64
}

// get appends the VALUE reply for key to dst, if key has an item.
func (st *store) get(dst, key []byte, r retrieval) []byte {
	s, h := st.lock(key, r.clock)
	defer s.mu.Unlock()
	i := s.find(h, key, r.clock)
	hit, miss := getHits, getMisses
	if r.touch {
		hit, miss = touchHits, touchMisses
	}
	if i == 0 {
		s.counts[miss]++
		return dst
	}
	s.counts[hit]++
	s.fetch(i, r.clock)
	b := s.at(i)
	if r.touch {
		b.put64(fieldDeadline, uint64(r.deadline))
	}
	dst = append(dst, "VALUE "...)
	dst = append(dst, key...)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(b.u32(fieldFlags)), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(b.valueLen()), 10)
	if r.withCAS {
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, b.u64(fieldCAS), 10)
	}
	dst = append(dst, "\r\n"...)
	dst = s.appendValue(dst, i)
	return append(dst, "\r\n"...)
}

// touch gives the item under key a deadline. It reports whether there is one.
func (st *store) touch(key []byte, deadline, now int64) bool {
	s, h := st.lock(key, now)
	defer s.mu.Unlock()
	i := s.find(h, key, now)
	if i == 0 {
		s.counts[touchMisses]++
		return false
	}
	s.counts[touchHits]++
	s.fetch(i, now)
	s.at(i).put64(fieldDeadline, uint64(deadline))
	return true
}

// fetch makes item i the most recently used one and marks it as fetched.
func (s *stripe) fetch(i uint32, now int64) {
	s.at(i).setState(stateFetched)
	s.use(i, now)
}
