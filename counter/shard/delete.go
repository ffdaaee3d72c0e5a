package shard

import "time"

// delete answers delete. A time of 0 before noreply is a relic that is still
// accepted.
func (c *conn) delete(now time.Time) {
	if c.words > 2 {
		zero := string(c.tokens[2]) == "0"
		noreply := c.noreplyMaybe()
		if !(c.words == 3 && (zero || noreply) || c.words == 4 && zero && noreply) {
			c.reply("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]")
			return
		}
	}
	key := c.tokens[1]
	if len(key) > maxKey {
		c.reply(badFormat)
		return
	}
	if c.store.delete(key, c.store.clock(now)) {
		c.reply("DELETED")
	} else {
		c.reply("NOT_FOUND")
	}
}

// delete removes the item under key. It reports whether there was one.
func (st *store) delete(key []byte, now int64) bool {
	return st.visit(key, now, deleteHits, deleteMisses, (*stripe).remove)
}
