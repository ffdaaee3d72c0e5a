package shard

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// counter is something that a stripe counts, as memcached does: a get counts once per
// key, cmdSet counts storage commands whose value arrived, whatever their outcome,
// and a number that became longer is a new item.
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
	reclaimed
	numCounters
)

// counterNames are the counters as stats names them.
var counterNames = [numCounters]string{
	"cmd_set", "get_hits", "get_misses", "get_expired", "get_flushed", "delete_misses", "delete_hits", "incr_misses", "incr_hits",
	"decr_misses", "decr_hits", "cas_misses", "cas_hits", "cas_badval", "touch_hits", "touch_misses",
	"total_items", "evictions", "reclaimed",
}

type counts [numCounters]uint64

// snapshot holds what the stripes have counted, and what they contain.
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
	case "settings", "items", "slabs", "sizes", "conns": // memcached has more to say about these
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
	c.statCounters(&n, getHits, touchMisses)
	c.stat("bytes_read", s.bytesRead.Load())
	c.stat("bytes_written", s.bytesWritten.Load())
	c.stat("limit_maxbytes", s.options.MaxBytes)
	c.stat("threads", runtime.GOMAXPROCS(0))
	c.stat("bytes", n.blocks*blockCost)
	c.stat("curr_items", n.items)
	c.statCounters(&n, totalItems, reclaimed)
	c.stat("instance", s.instance) // memcached has none
	c.reply("END")
}

func (c *conn) stat(name string, value any) {
	c.out = fmt.Appendf(c.out, "STAT %s %v\r\n", name, value)
}

// statCounters reports the counters from first to last.
func (c *conn) statCounters(n *snapshot, first, last counter) {
	for i := first; i <= last; i++ {
		c.stat(counterNames[i], n.counts[i])
	}
}
