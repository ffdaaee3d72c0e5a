package shard

import "time"

// delete answers delete.
func (c *conn) delete(now time.Time) {
	noreply := c.words > 2 && c.noreplyMaybe()
	key := c.tokens[1]
	switch {
	case c.words == 4 || c.words == 3 && !noreply:
		c.reply(badFormat + ".  Usage: delete <key> [noreply]")
	case len(key) > maxKey:
		c.reply(badFormat)
	case c.store.delete(key, c.store.clock(now)):
		c.reply("DELETED")
	default:
		c.reply("NOT_FOUND")
	}
}

// delete removes the item of key. It reports whether there was one.
func (st *store) delete(key []byte, now int64) bool {
	return st.visit(key, now, deleteHits, deleteMisses, (*stripe).remove)
}

// flushAll answers flush_all. A delay other than 0 is refused.
func (c *conn) flushAll(time.Time) {
	c.server.flushes.Add(1)
	noreply := c.noreplyMaybe()
	if (c.words == 3 || c.words == 2 && !noreply) && string(c.tokens[1]) != "0" {
		c.reply(badExptime)
		return
	}
	c.store.flush()
	c.reply("OK")
}

// flush makes all items dead, possibly including items that are stored during flush.
func (st *store) flush() {
	cas := st.lastCAS.Add(1)
	for i := range st.stripes {
		s := &st.stripes[i]
		s.mu.Lock()
		s.flushed = max(s.flushed, cas)
		s.mu.Unlock()
	}
}
