package mitigation

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/counter"
)

// Options configures a Table. The zero value is usable.
type Options struct {
	// Size is how many records are held at most. At the bound the longest unused goes;
	// it is learned again from its shard with its key's next count. If zero, 131072.
	Size int

	// Registerer registers the table's metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

// parts is how many locks readers share. A power of two.
const parts = 64

// A Table holds the records that a node knows, at most one for each key. All methods may
// be called concurrently. Get takes a lock that writers hold for a map operation only.
type Table struct {
	part [parts]*lru.Cache[counter.Key, *held]
	wake chan struct{} // holds at most one: something ends earlier

	mu  sync.Mutex // held to write
	due expiry     // what is held, by deadline

	evicted prometheus.Counter
}

// held is a record in a table.
type held struct {
	Record
	used atomic.Int64 // second in which it was last made the youngest of its part
	at   int          // place in Table.due, or -1
}

// New returns an empty table.
func New(o Options) (*Table, error) {
	if o.Size < 0 {
		return nil, fmt.Errorf("mitigation: size %d is negative", o.Size)
	}
	if o.Size == 0 {
		o.Size = 1 << 17
	}
	t := &Table{wake: make(chan struct{}, 1)}
	for i := range t.part {
		part, err := lru.NewWithEvict((o.Size+parts-1)/parts, t.gone)
		if err != nil {
			return nil, fmt.Errorf("mitigation: %w", err)
		}
		t.part[i] = part
	}
	f := promauto.With(o.Registerer)
	t.evicted = f.NewCounter(prometheus.CounterOpts{
		Name: "edge_mitigation_records_evicted_total",
		Help: "Records that were forgotten before their end because the table was full.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_mitigation_records",
		Help: "Mitigation records in memory, also those of lifts.",
	}, func() float64 { return float64(t.Len()) })
	return t, nil
}

func (t *Table) of(k counter.Key) *lru.Cache[counter.Key, *held] { return t.part[k[0]%parts] }

// Get returns the record that mitigates k now, if there is one.
func (t *Table) Get(k counter.Key, now time.Time) (Record, bool) {
	part := t.of(k)
	h, ok := part.Peek(k)
	if !ok || h.Lifted || !now.Before(h.Deadline) {
		return Record{}, false
	}
	// Peek shares its lock with other readers, but does not make the record the
	// youngest; once a second is enough for that.
	if second := now.Unix(); h.used.Load() != second && h.used.Swap(second) != second {
		part.Get(k)
	}
	return h.Record, true
}

// Held returns the record of k, whether it mitigates or says that a mitigation was
// lifted.
func (t *Table) Held(k counter.Key, now time.Time) (Record, bool) {
	h, ok := t.of(k).Peek(k)
	if !ok || !now.Before(h.Deadline) {
		return Record{}, false
	}
	return h.Record, true
}

// Len returns how many records are held.
func (t *Table) Len() (n int) {
	for _, part := range t.part {
		n += part.Len()
	}
	return n
}

// Merge keeps the greater of r and the record that t holds for r's key, by generation,
// lifted, end and node, and reports whether t changed. Of two copies of the same record
// the earlier deadline stays. Records may arrive in any order, and twice; one that is
// past its deadline is ignored.
func (t *Table) Merge(r Record, now time.Time) (changed bool) {
	if latest := now.Add(min(r.Lifetime, MaxLifetime)); r.Deadline.After(latest) {
		r.Deadline = latest
	}
	if !now.Before(r.Deadline) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	part := t.of(r.Key)
	old, ok := part.Peek(r.Key)
	if ok && now.Before(old.Deadline) {
		switch c := compare(r, old.Record); {
		case c < 0, c == 0 && !r.Deadline.Before(old.Deadline):
			return false
		case c > 0:
			changed = true
		}
	} else {
		changed = true
	}
	if ok {
		t.forget(old)
		if r.Sample == nil {
			r.Sample = old.Sample
		}
	}
	h := &held{Record: r}
	h.used.Store(now.Unix())
	heap.Push(&t.due, h)
	part.Add(r.Key, h) // may call gone for the longest unused
	if h.at == 0 {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
	return changed
}

// forget removes h from the order of deadlines.
func (t *Table) forget(h *held) {
	if h.at >= 0 {
		heap.Remove(&t.due, h.at)
	}
}

// gone is called for what leaves a part. mu is held: only Merge and expire take
// anything out.
func (t *Table) gone(_ counter.Key, h *held) {
	if h.at >= 0 {
		t.evicted.Inc()
		t.forget(h)
	}
}

// Run forgets each record at its deadline and passes those of mitigations that have
// ended so to ended. It returns when ctx is done.
func (t *Table) Run(ctx context.Context, ended func(Record)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
		now := time.Now()
		records, next := t.expire(now)
		for _, r := range records {
			ended(r)
		}
		if timer.Stop(); !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
	}
}

// expire removes what is past its deadline. It returns the mitigations among it, and the
// next deadline, zero if there is none.
func (t *Table) expire(now time.Time) (ended []Record, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.due) > 0 {
		h := t.due[0]
		if now.Before(h.Deadline) {
			return ended, h.Deadline
		}
		t.forget(h)
		t.of(h.Key).Remove(h.Key)
		if !h.Lifted {
			ended = append(ended, h.Record)
		}
	}
	return ended, time.Time{}
}

// expiry is a heap by deadline.
type expiry []*held

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].Deadline.Before(e[j].Deadline) }
func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].at, e[j].at = i, j
}

func (e *expiry) Push(x any) {
	h := x.(*held)
	h.at = len(*e)
	*e = append(*e, h)
}

func (e *expiry) Pop() any {
	last := len(*e) - 1
	h := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	h.at = -1
	return h
}
