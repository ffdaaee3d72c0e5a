package shard

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// counter is something that a stripe counts. What each of them counts is what
// memcached does: cmd_get is getHits + getMisses and has one for each key, a storage command is in cmdSet if its
// value arrived, whatever became of it, and a number that got longer is a new
// item.
type counter int

const (
	cmdSet counter = iota
	getHits
	getMisses
	getExpired
	getFlushed
	deleteMisses
	deleteHits
	incrMisses
	incrHits
	decrMisses
	decrHits
	casMisses
	casHits
	casBadval
	touchHits
	touchMisses
	totalItems
	evictions
	evictedUnfetched
	expiredUnfetched
	reclaimed
	numCounters
)

type counts [numCounters]uint64

// snapshot is what the stripes had counted, and what they held, at some time.
type snapshot struct {
	counts
	items, blocks int
}

func (s *Server) snapshot() (now snapshot) {
	for i := range s.store.stripes {
		st := &s.store.stripes[i]
		st.mu.Lock()
		for j, n := range st.counts {
			now.counts[j] += n
		}
		now.items += st.items
		now.blocks += st.used
		st.mu.Unlock()
	}
	return now
}

// stats answers stats.
func (c *conn) stats(now time.Time) {
	if c.words == 1 {
		c.generalStats(now)
		return
	}
	switch string(c.tokens[1]) {
	case "settings", "items", "slabs", "sizes", "conns": // there is nothing to tell
		c.reply("END")
	default:
		c.reply("ERROR")
	}
}

func (c *conn) generalStats(now time.Time) {
	s := c.server
	n := s.snapshot()

	c.stat("pid", os.Getpid())
	c.stat("uptime", int(now.Sub(s.start)/time.Second))
	c.stat("time", now.Unix())
	c.stat("version", version)
	c.stat("pointer_size", strconv.IntSize)
	c.stat("max_connections", s.options.MaxConns)
	c.stat("curr_connections", s.conns.Load())
	c.stat("total_connections", s.acceptedConns.Load())
	c.stat("rejected_connections", s.rejectedConns.Load())
	c.stat("cmd_get", n.counts[getHits]+n.counts[getMisses])
	c.stat("cmd_set", n.counts[cmdSet])
	c.stat("cmd_flush", s.flushes.Load())
	c.stat("cmd_touch", n.counts[touchHits]+n.counts[touchMisses])
	c.stat("get_hits", n.counts[getHits])
	c.stat("get_misses", n.counts[getMisses])
	c.stat("get_expired", n.counts[getExpired])
	c.stat("get_flushed", n.counts[getFlushed])
	c.stat("delete_misses", n.counts[deleteMisses])
	c.stat("delete_hits", n.counts[deleteHits])
	c.stat("incr_misses", n.counts[incrMisses])
	c.stat("incr_hits", n.counts[incrHits])
	c.stat("decr_misses", n.counts[decrMisses])
	c.stat("decr_hits", n.counts[decrHits])
	c.stat("cas_misses", n.counts[casMisses])
	c.stat("cas_hits", n.counts[casHits])
	c.stat("cas_badval", n.counts[casBadval])
	c.stat("touch_hits", n.counts[touchHits])
	c.stat("touch_misses", n.counts[touchMisses])
	c.stat("bytes_read", s.bytesRead.Load())
	c.stat("bytes_written", s.bytesWritten.Load())
	c.stat("limit_maxbytes", s.options.MaxBytes)
	c.stat("threads", runtime.GOMAXPROCS(0))
	c.stat("bytes", n.blocks*blockCost)
	c.stat("curr_items", n.items)
	c.stat("total_items", n.counts[totalItems])
	c.stat("expired_unfetched", n.counts[expiredUnfetched])
	c.stat("evicted_unfetched", n.counts[evictedUnfetched])
	c.stat("evictions", n.counts[evictions])
	c.stat("reclaimed", n.counts[reclaimed])
	c.stat("instance", s.instance) // memcached has none
	c.reply("END")
}

func (c *conn) stat(name string, value any) {
	c.out = fmt.Appendf(c.out, "STAT %s %v\r\n", name, value)
}
