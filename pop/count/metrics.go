package count

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
	causes
)

var causeNames = [causes]string{
	dropQueue:   "queue_full",
	dropShard:   "shard_unavailable",
	dropMemory:  "key_forgotten",
	dropFull:    "sub_window_full",
	dropNodes:   "too_many_nodes",
	dropRefused: "shard_full",
	dropLifted:  "lifted",
}

// losses counts dropped requests, once for each limit, by cause.
type losses [causes]uint64

type metrics struct {
	dropped [causes]prometheus.Counter
	evicted prometheus.Counter
	fell    prometheus.Counter
	lag     prometheus.Histogram
	backlog atomic.Int64 // keys that wait for a shard
	oldest  atomic.Int64 // when their oldest request came, in microseconds; 0: none waits
}

func newMetrics(reg prometheus.Registerer, c *Loop) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		evicted: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_tracked_keys_evicted_total",
			Help: "Keys evicted from memory to make room for others. Their counts are read again with the key's next request.",
		}),
		fell: f.NewCounter(prometheus.CounterOpts{
			Name: "edge_numbers_fallen_total",
			Help: "Counters whose value fell since it was last read: the shard restarted or evicted them, or a lift deleted them.",
		}),
		lag: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "edge_counting_lag_seconds",
			Help:    "Time from the oldest request of an increment until the shard's answer to it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}),
	}
	dropped := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_increments_dropped_total",
		Help: "Requests that were not counted, once for each limit, by cause.",
	}, []string{"cause"})
	for cause, name := range causeNames {
		m.dropped[cause] = dropped.WithLabelValues(name)
	}
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("edge_tracked_keys", "Keys whose counts are in memory.", func() float64 {
		n := 0
		for _, part := range c.tracks {
			n += part.Len()
		}
		return float64(n)
	})
	gauge("edge_counting_backlog", "Keys waiting to be counted at a shard.", func() float64 { return float64(m.backlog.Load()) })
	gauge("edge_counting_oldest_seconds", "Age of the oldest request waiting to be counted at a shard.", func() float64 {
		_, age := c.Backlog()
		return age.Seconds()
	})
	gauge("edge_counting_alone", "1 while no shard is available and the node counts alone; see also edge_shard_breaker_open.", func() float64 {
		if c.alone.Load() {
			return 1
		}
		return 0
	})
	gauge("edge_limits_counted_alone", "Limits that each node counts alone because the PoP has too many nodes for their sub-windows.", func() float64 {
		_, alone := c.SubWindows()
		return float64(alone)
	})
	return m
}

// lose adds lost to the metrics and resets it.
func (m *metrics) lose(lost *losses) {
	for cause, n := range lost {
		if n > 0 {
			m.dropped[cause].Add(float64(n))
		}
	}
	*lost = losses{}
}

// note records how many keys wait, and since when.
func (m *metrics) note(c *Loop) {
	n, oldest := c.nowhere.waiting(), c.nowhere.near.oldest(c.nowhere.far.oldest(0))
	for _, ln := range c.lanes() {
		n += ln.waiting()
		oldest = ln.near.oldest(ln.far.oldest(oldest))
	}
	m.backlog.Store(int64(n))
	m.oldest.Store(oldest)
}

// oldest returns the earlier of than and the time of the oldest request of the first key in l;
// 0 stands for never.
func (l *list) oldest(than int64) int64 {
	if l.head != nil && l.head.since != 0 && (than == 0 || l.head.since < than) {
		return l.head.since
	}
	return than
}

// Backlog returns how many keys wait for a shard, and the age of their oldest request.
func (c *Loop) Backlog() (keys int, oldest time.Duration) {
	if since := c.metrics.oldest.Load(); since != 0 {
		oldest = max(0, c.o.Now().Sub(time.UnixMicro(since)))
	}
	return int(c.metrics.backlog.Load()), oldest
}
