package shard

import "time"

// metaDelete answers md.
func (c *conn) metaDelete(n int, now time.Time) {
	if !c.metaChange(n, now) {
		return
	}
	r := &c.meta
	if r.longOpaque {
		c.reply(opaqueTooLong)
		return
	}
	status := c.store.metaDelete(r, c.store.clock(now))
	if status == "HD" && r.noreply {
		return
	}
	c.metaStatus(status)
}

// metaDelete removes the item that r is about, or marks it as stale, and
// returns the status to answer.
func (st *store) metaDelete(r *metaRequest, now int64) string {
	s, h := st.lock(r.key, now)
	defer s.mu.Unlock()
	i := s.find(h, r.key, now)
	if i == 0 {
		s.counts[deleteMisses]++
		return "NF"
	}
	b := s.at(i)
	switch {
	case r.hasCAS && r.cas != b.u64(fieldCAS):
		s.counts[deleteMisses]++
		return "EX"
	case r.invalidate:
		if r.hasTTL {
			b.put64(fieldDeadline, uint64(r.deadline))
		}
		b.setState(stateStale)
		b.clearState(stateTokenSent)
		st.newCAS(b)
	default:
		s.counts[deleteHits]++
		s.remove(h, i)
	}
	return "HD"
}
