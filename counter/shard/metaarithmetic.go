package shard

import (
	"strconv"
	"time"
)

// metaArithmetic answers ma.
func (c *conn) metaArithmetic(n int, now time.Time) {
	if !c.metaChange(n, now) {
		return
	}
	r := &c.meta
	d := delta{by: r.delta, cas: r.cas}
	switch r.mode {
	case 0, 'I', '+':
	case 'D', '-':
		d.decr = true
	default:
		c.reply("CLIENT_ERROR invalid mode for ma M token")
		return
	}
	if r.longOpaque {
		c.reply(opaqueTooLong)
		return
	}
	out, res := c.store.metaArithmetic(c.out, r, d, c.store.clock(now))
	c.out = out
	switch res {
	case deltaNotFound:
		c.metaStatus("NF")
	case deltaExists:
		c.metaStatus("EX")
	case deltaNonNumeric:
		c.reply(nonNumeric)
	}
}

// metaArithmetic applies d as r asks and appends the answer to dst, if there is
// a new number.
func (st *store) metaArithmetic(dst []byte, r *metaRequest, d delta, now int64) ([]byte, deltaResult) {
	s, h := st.lock(r.key, now)
	defer s.mu.Unlock()
	i := s.find(h, r.key, now)
	created := i == 0
	if created && !r.vivify {
		s.counts[d.misses()]++
		return dst, deltaNotFound
	}
	v := r.initial
	if !created {
		var res deltaResult
		if v, res = st.addTo(s, i, d, now); res != deltaOK {
			return dst, res
		}
	}
	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], v, 10)
	if created {
		i = s.insert(h, r.key, len(digits), now)
		s.write(i, len(r.key), digits)
		s.counts[totalItems]++
		st.newCAS(s.at(i))
	}

	before := len(dst)
	b := s.at(i)
	dst = appendStatus(dst, r, len(digits))
	for _, letter := range r.letters {
		switch letter {
		case 'c':
			dst = strconv.AppendUint(append(dst, " c"...), b.u64(fieldCAS), 10)
		case 't':
			dst = appendTTL(dst, b, now)
		case 'T':
			b.put64(fieldDeadline, uint64(r.deadline))
		case 'N':
			if created {
				b.put64(fieldDeadline, uint64(r.vivifyDeadline))
			}
		default:
			dst = r.appendEcho(dst, letter)
		}
	}
	dst = append(dst, "\r\n"...)
	if r.value {
		dst = append(append(dst, digits...), "\r\n"...)
	}
	if r.noreply && !created {
		dst = dst[:before] // a created item is answered even so
	}
	return dst, deltaOK
}
