package shard

import (
	"bytes"
	"strconv"
	"time"
)

// arithmetic answers incr and decr.
func (c *conn) arithmetic(decr bool, now time.Time) {
	c.noreplyMaybe()
	key := c.tokens[1]
	if len(key) > maxKey {
		c.reply(badFormat)
		return
	}
	by, ok := parseUint(c.tokens[2], 64)
	if !ok {
		c.reply("CLIENT_ERROR invalid numeric delta argument")
		return
	}
	v, problem := c.store.add(key, by, decr, c.store.clock(now))
	switch {
	case problem != "":
		c.reply(problem)
	case !c.noreply:
		c.out = append(strconv.AppendUint(c.out, v, 10), "\r\n"...)
	}
}

const nonNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value"

// add adds by to the number under key, modulo 2^64, or with decr subtracts it, down to 0, and
// returns the new number. If it cannot, it returns what to answer.
//
// If the new number is no longer than the old one, it overwrites it, padded with spaces. Otherwise
// the item grows, which counts as a new item. In either case its flags and deadline stay.
func (st *store) add(key []byte, by uint64, decr bool, now int64) (v uint64, problem string) {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	hits, misses := incrHits, incrMisses
	if decr {
		hits, misses = decrHits, decrMisses
	}
	i := s.find(h, key, now)
	if i == 0 {
		s.counts[misses]++
		return 0, "NOT_FOUND"
	}
	b := s.at(i)
	inline := b.inline()
	var text []byte
	if inline {
		text = b.inlineValue()
	} else {
		text = s.appendValue(nil, i)
	}
	v, ok := parseUint(bytes.TrimRight(text, " "), 64)
	if !ok {
		return 0, nonNumeric
	}
	s.counts[hits]++
	if decr {
		v -= min(v, by)
	} else {
		v += by
	}

	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], v, 10)
	if len(digits) > len(text) {
		s.resize(i, len(digits), now)
		s.write(i, b.keyLen(), digits)
		s.counts[totalItems]++
	} else {
		for j := copy(text, digits); j < len(text); j++ {
			text[j] = ' '
		}
		if !inline {
			s.write(i, b.keyLen(), text)
		}
	}
	s.use(i)
	st.newCAS(b)
	return v, ""
}
