package shard

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A counter names a figure that a stripe counts as memcached does: a get counts once per key, and cmdSet counts storage
// commands whose value arrived, whatever their outcome.
type counter int

const (
	cmdSet counter = iota
	getHits
	getMisses
	deleteHits
	deleteMisses
	incrHits
	incrMisses
	casHits
	casMisses
	casBadval
	evictions
	reclaimed
	numCounters
)

// counterNames are the counters as stats names them.
var counterNames = [numCounters]string{
	"cmd_set", "get_hits", "get_misses", "delete_hits", "delete_misses", "incr_hits", "incr_misses",
	"cas_hits", "cas_misses", "cas_badval", "evictions", "reclaimed",
}

type counts [numCounters]uint64

// count counts a hit or a miss.
func (s *stripe) count(hit bool, hits, misses counter) {
	if hit {
		misses = hits
	}
	s.counts[misses]++
}

// A snapshot holds the sums of the stripes' counts, items and bytes.
type snapshot struct {
	counts
	items, bytes int
}

func (s *Server) snapshot() (now snapshot) {
	for i := range s.store.stripes {
		st := &s.store.stripes[i]
		st.mu.Lock()
		for j, n := range st.counts {
			now.counts[j] += n
		}
		now.items += len(st.index)
		now.bytes += st.log.used() + indexShare*len(st.index)
		st.mu.Unlock()
	}
	return now
}

// stats answers stats.
func (c *conn) stats() {
	if len(c.words) > 1 {
		c.reply("ERROR")
		return
	}
	stat := func(name string, value any) { c.out = fmt.Appendf(c.out, "STAT %s %v\r\n", name, value) }
	n, now := c.snapshot(), time.Now()
	stat("pid", os.Getpid())
	stat("uptime", int(now.Sub(c.start)/time.Second))
	stat("time", now.Unix())
	stat("version", version)
	stat("max_connections", c.options.MaxConns)
	stat("curr_connections", c.conns.Load())
	stat("total_connections", c.accepted.Load())
	stat("rejected_connections", c.rejected.Load())
	stat("cmd_get", n.counts[getHits]+n.counts[getMisses])
	stat("cmd_flush", c.flushes.Load())
	for i, name := range counterNames {
		stat(name, n.counts[i])
	}
	stat("limit_maxbytes", c.options.MaxBytes)
	stat("bytes", n.bytes)
	stat("curr_items", n.items)
	c.reply("END")
}

// register registers metrics that read the figures of stats.
func (s *Server) register(reg prometheus.Registerer) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func() int64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	total := func(name, help string, labels prometheus.Labels, value func() uint64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value()) })
	}
	gauge("edge_shard_server_items", "Items in memory, including expired ones that have not been accessed since.",
		func() int64 { return int64(s.snapshot().items) })
	gauge("edge_shard_server_bytes", "Memory used by items, including overhead.",
		func() int64 { return int64(s.snapshot().bytes) })
	gauge("edge_shard_server_limit_bytes", "Maximum memory for items; beyond it, items are evicted.",
		func() int64 { return s.options.MaxBytes })
	gauge("edge_shard_server_connections", "Open client connections.", s.conns.Load)
	total("edge_shard_server_connections_refused_total", "Connections refused because there were too many.", nil,
		func() uint64 { return uint64(s.rejected.Load()) })
	total("edge_shard_server_evictions_total", "Items evicted before they expired, to make room.", nil,
		func() uint64 { return s.snapshot().counts[evictions] })
	commands := func(op string, count func(counts) uint64) {
		total("edge_shard_server_commands_total", "Commands executed, by kind; a get counts once per key.",
			prometheus.Labels{"op": op}, func() uint64 { return count(s.snapshot().counts) })
	}
	commands("flush", func(counts) uint64 { return uint64(s.flushes.Load()) })
	commands("get", func(n counts) uint64 { return n[getHits] + n[getMisses] })
	commands("set", func(n counts) uint64 { return n[cmdSet] })
	commands("incr", func(n counts) uint64 { return n[incrHits] + n[incrMisses] })
	commands("delete", func(n counts) uint64 { return n[deleteHits] + n[deleteMisses] })
}
