package shard

import (
	"strconv"
	"time"
)

// metaGet answers mg.
func (c *conn) metaGet(n int, now time.Time) {
	if !c.metaWords(n, "CLIENT_ERROR options flags are too long") {
		return
	}
	r := &c.meta
	problem := r.parse(c.store, c.tokens[1], c.tokens[2:n], now)
	switch {
	case problem != "":
		c.reply(problem)
	case r.longOpaque:
		c.reply(opaqueTooLong)
	default:
		c.out = c.store.metaGet(c.out, r, c.store.clock(now))
	}
}

// metaGet carries out r and appends the answer to dst.
func (st *store) metaGet(dst []byte, r *metaRequest, now int64) []byte {
	s, h := st.lock(r.key, now)
	defer s.mu.Unlock()
	i := s.find(h, r.key, now)
	created := false
	if i == 0 && r.vivify {
		i = s.insert(h, r.key, 0, now)
		created = true
		st.newCAS(s.at(i))
		s.counts[totalItems]++
	}
	if i == 0 {
		s.counts[getMisses]++
		if r.noreply {
			return dst
		}
		dst = append(dst, "EN"...)
		for _, letter := range r.letters {
			dst = r.appendEcho(dst, letter)
		}
		return append(dst, "\r\n"...)
	}

	if r.hasTTL {
		s.counts[touchHits]++
	} else {
		s.counts[getHits]++
	}
	dst, won := s.appendFlags(appendStatus(dst, r, s.at(i).valueLen()), i, r, created, now)
	b := s.at(i)
	if b.is(stateTokenSent) {
		dst = append(dst, " Z"...)
	}
	if b.is(stateStale) {
		dst = append(dst, " X"...)
		won = won || !b.is(stateTokenSent)
	}
	if won {
		dst = append(dst, " W"...)
		b.setState(stateTokenSent)
	}
	dst = append(dst, "\r\n"...)
	if r.value {
		dst = append(s.appendValue(dst, i), "\r\n"...)
	}
	if !r.noUpdate {
		s.fetch(i, now)
	}
	return dst
}

// appendStatus appends the first word or two of the answer to an mg or ma that
// has found its item.
func appendStatus(dst []byte, r *metaRequest, valueLen int) []byte {
	if !r.value {
		return append(dst, "HD"...)
	}
	return strconv.AppendUint(append(dst, "VA "...), uint64(valueLen), 10)
}

// appendFlags carries out the flags of an mg on item i in their order and
// appends what they add to the answer. It reports whether the client has won
// the right to recache the item, which may be one just created.
func (s *stripe) appendFlags(dst []byte, i uint32, r *metaRequest, created bool, now int64) (_ []byte, won bool) {
	b := s.at(i)
	for _, letter := range r.letters {
		switch letter {
		case 'N':
			if created {
				b.put64(fieldDeadline, uint64(r.vivifyDeadline))
				won = true
			}
		case 'T':
			b.put64(fieldDeadline, uint64(r.deadline))
		case 'R':
			if !created && !b.is(stateTokenSent) && b.u64(fieldDeadline) != never &&
				ttl(int64(b.u64(fieldDeadline)), now) < ttl(r.recacheDeadline, now) {
				won = true
			}
		case 's':
			dst = strconv.AppendUint(append(dst, " s"...), uint64(b.valueLen()), 10)
		case 't':
			dst = appendTTL(dst, b, now)
		case 'c':
			dst = strconv.AppendUint(append(dst, " c"...), b.u64(fieldCAS), 10)
		case 'f':
			dst = strconv.AppendUint(append(dst, " f"...), uint64(b.u32(fieldFlags)), 10)
		case 'l':
			// Another client may have used the item since now was read.
			since := max(0, int64(seconds(now))-int64(b.u32(fieldAccessed)))
			dst = strconv.AppendInt(append(dst, " l"...), since, 10)
		case 'h':
			if b.is(stateFetched) {
				dst = append(dst, " h1"...)
			} else {
				dst = append(dst, " h0"...)
			}
		case 'k':
			var key [maxKey]byte
			dst = appendMetaKey(dst, s.appendKey(key[:0], i), b.is(stateBinaryKey))
		default:
			dst = r.appendEcho(dst, letter)
		}
	}
	return dst, won
}

// ttl returns the time from now to deadline in seconds, rounded up.
func ttl(deadline, now int64) int64 {
	left := deadline - now
	if left <= 0 {
		return 0
	}
	return (left + int64(time.Second) - 1) / int64(time.Second)
}

func appendTTL(dst []byte, b *block, now int64) []byte {
	deadline := int64(b.u64(fieldDeadline))
	if deadline == never {
		return append(dst, " t-1"...)
	}
	return strconv.AppendUint(append(dst, " t"...), uint64(ttl(deadline, now)), 10)
}
