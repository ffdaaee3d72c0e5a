package async

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Causes of dropped counts.
const (
	dropQueue = iota
	dropShard
	dropMemory
	dropFull
	dropNodes
	dropRefused
	dropLifted
	dropChanged
	causes
)

var causeNames = [causes]string{"queue_full", "shard_unavailable", "key_forgotten", "sub_window_full", "too_many_nodes",
	"shard_full", "lifted", "limit_changed"}

type metrics struct {
	dropped           [causes]prometheus.Counter
	learned           *prometheus.CounterVec
	evicted, unlogged prometheus.Counter
	fallen            atomic.Uint64
	alone             prometheus.Gauge
	lag               prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, c *Loop) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	labeled := func(name, help, label string, values ...string) *prometheus.CounterVec {
		vec := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			vec.WithLabelValues(value)
		}
		return vec
	}
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m := &metrics{
		learned: labeled("edge_mitigations_learned_total", "New mitigation records from peers and shards, by source.",
			"source", "shard", "peer"),
		evicted: counter("edge_tracked_keys_evicted_total",
			"Keys evicted from memory to make room for others. Their counts are read again with the key's next request."),
		unlogged: counter("edge_mitigation_log_lines_dropped_total",
			"Starts and ends of mitigations that were not logged because there were too many, of the same key or in total."),
		alone: f.NewGauge(prometheus.GaugeOpts{
			Name: "edge_counting_alone",
			Help: "1 while no shard is available and the node counts alone; see also edge_shard_breaker_open.",
		}),
		lag: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "edge_counting_lag_seconds",
			Help:    "Time from the oldest request of an increment until the shard's reply to it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}),
	}
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "edge_counters_fallen_total",
		Help: "Counters that lost counts, each once per window: the shard restarted, lacks memory, or is several servers.",
	}, func() float64 { return float64(c.Fallen()) })
	dropped := labeled("edge_increments_dropped_total", "Requests that were not counted, once for each limit, by cause.",
		"cause", causeNames[:]...)
	for cause, name := range causeNames {
		m.dropped[cause] = dropped.WithLabelValues(name)
	}
	gauge("edge_tracked_keys", "Keys whose counts are in memory.", func() (n float64) {
		for i := range c.tracks {
			c.tracks[i].mu.Lock()
			n += float64(c.tracks[i].n)
			c.tracks[i].mu.Unlock()
		}
		return n
	})
	gauge("edge_counting_backlog", "Keys waiting to be counted at a shard.", func() float64 {
		keys, _ := c.Backlog()
		return float64(keys)
	})
	gauge("edge_counting_oldest_request_age_seconds", "Age of the oldest request waiting to be counted at a shard.",
		func() float64 {
			_, age := c.Backlog()
			return age.Seconds()
		})
	gauge("edge_limits_counted_alone",
		"Limits that each node counts alone because the PoP has too many nodes for their sub-windows.", func() float64 {
			_, alone := c.SubWindows()
			return float64(alone)
		})
	return m
}

// Fallen returns how many counters lost counts at their shard, each once in a window.
func (c *Loop) Fallen() uint64 { return c.metrics.fallen.Load() }

// Backlog returns how many keys wait for a shard, and the age of their oldest request.
func (c *Loop) Backlog() (keys int, oldest time.Duration) {
	for _, ln := range c.placed.Load().lanes {
		keys += int(ln.waiting.Load())
		oldest = max(oldest, c.age(ln.oldest.Load()))
	}
	return keys, oldest
}

// age returns the time since a request arrived, or 0 if since is 0.
func (c *Loop) age(since int64) time.Duration {
	if since == 0 {
		return 0
	}
	return max(0, c.o.Now().Sub(time.UnixMicro(since)))
}
