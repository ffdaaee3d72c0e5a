package shard

import (
	"strconv"
	"time"
)

// arithmetic answers incr and decr, d with the number in the command.
func (c *conn) arithmetic(n int, d delta, now time.Time) {
	if !c.want(n, 3, 4) {
		return
	}
	c.noreplyMaybe()
	key := c.tokens[1]
	if len(key) > maxKey {
		c.reply(badFormat)
		return
	}
	var ok bool
	if d.by, ok = parseUint64(c.tokens[2]); !ok {
		c.reply("CLIENT_ERROR invalid numeric delta argument")
		return
	}
	v, res := c.store.add(key, d, c.store.clock(now))
	switch {
	case res == deltaNotFound:
		c.reply("NOT_FOUND")
	case res == deltaNonNumeric:
		c.reply(nonNumeric)
	case !c.noreply:
		c.out = append(strconv.AppendUint(c.out, v, 10), "\r\n"...)
	}
}

const nonNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value"

// delta is what to add to a number, modulo 2^64, or what to subtract from it,
// down to 0.
type delta struct {
	by   uint64
	decr bool
	cas  uint64 // that the item must have, or 0
}

type deltaResult byte

const (
	deltaOK deltaResult = iota
	deltaNotFound
	deltaNonNumeric
	deltaExists
)

// add applies d to the number under key and returns the new one.
func (st *store) add(key []byte, d delta, now int64) (uint64, deltaResult) {
	s, h := st.lock(key, now)
	defer s.mu.Unlock()
	i := s.find(h, key, now)
	if i == 0 {
		s.counts[d.misses()]++
		return 0, deltaNotFound
	}
	return st.addTo(s, i, d, now)
}

func (d delta) misses() counter {
	if d.decr {
		return decrMisses
	}
	return incrMisses
}

// addTo applies d to item i. The new number takes the place of the old one if
// it is no longer, padded with spaces; else the item gets longer, which counts
// as a new item. In either case its flags and deadline stay.
func (st *store) addTo(s *stripe, i uint32, d delta, now int64) (uint64, deltaResult) {
	b := s.at(i)
	inline := b.inline()
	var text []byte
	if inline {
		text = b.inlineValue()
	} else {
		text = s.appendValue(s.scratch[:0], i)
		defer s.keepScratch(text)
	}
	if len(text) == 0 {
		return 0, deltaNonNumeric
	}
	if d.cas != 0 && d.cas != b.u64(fieldCAS) {
		return 0, deltaExists
	}
	v, ok := parseUint64(text)
	if !ok {
		return 0, deltaNonNumeric
	}
	if d.decr {
		s.counts[decrHits]++
		v -= min(v, d.by)
	} else {
		s.counts[incrHits]++
		v += d.by
	}

	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], v, 10)
	if len(digits) > len(text) {
		s.resize(i, len(digits), now)
		s.write(i, b.keyLen(), digits)
		b[fieldState] = 0
		s.counts[totalItems]++
	} else {
		for j := copy(text, digits); j < len(text); j++ {
			text[j] = ' '
		}
		if !inline {
			s.write(i, b.keyLen(), text)
		}
	}
	s.use(i, now)
	st.newCAS(b)
	return v, deltaOK
}

// scratchSize is the size up to which a stripe keeps its scratch buffer.
const scratchSize = 4 << 10

func (s *stripe) keepScratch(b []byte) {
	if cap(b) <= scratchSize {
		s.scratch = b[:0]
	}
}
