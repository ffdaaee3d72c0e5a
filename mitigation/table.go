package mitigation

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"iter"
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
	// Size is the maximum number of records. If there are more, the table evicts the least recently used; the node learns
	// it again from the shard with its key's next count. If zero, 131072.
	Size int

	// ID returns the ID that records of a key get. The table calls it once for each new key; ID must not use the table. If
	// nil, records have no ID.
	ID func(counter.Key) counter.ID

	// Registerer registers the table's metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

// parts is the number of locks that readers share, a power of two.
const parts = 64

// A Table holds the records that a node knows, at most one per key. It is safe for concurrent use. Get takes a lock
// that writers hold only for a map operation, and May takes none. For most keys without a record, May returns false.
type Table struct {
	part [parts]*lru.Cache[counter.Key, *heldRecord]
	size int // of all parts

	// same counts the records by 15 bits of their keys, so that most keys without a record need no lock.
	same [1 << 15]atomic.Int32

	// sameRule counts the records by 10 bits of their rules; the first counter includes those of unknown rules.
	sameRule [1 << 10]atomic.Int32

	mu     sync.Mutex // held for writing; guards the fields below
	due    expiry     // the records, by the time of their next event
	digest Digest

	lifted atomic.Bool // at least one key was ever lifted

	evictions prometheus.Counter
	evicted   *counter.Key // by the current call of Merge
	id        func(counter.Key) counter.ID
}

// A heldRecord is a record in a table.
type heldRecord struct {
	Record
	used  atomic.Int64  // second in which it was last made the most recently used of its part
	acted atomic.Uint64 // see Record.Acted
	taken atomic.Bool   // see Table.Take
	over  bool          // past its deadline, and reported
	at    int           // place in Table.due, or -1
}

// kept is how long a record is kept after its deadline: longer than a copy of it can be in
// transit, which would otherwise revive it.
const kept = 10 * time.Second

// until returns the time of h's next event: its end, or when the table forgets it.
func (h *heldRecord) until() time.Time {
	if h.over {
		return h.Deadline.Add(kept)
	}
	return h.Deadline
}

// New returns an empty table.
func New(o Options) *Table {
	inPart := (cmp.Or(o.Size, 1<<17) + parts - 1) / parts
	t := &Table{size: parts * inPart, id: o.ID}
	if t.id == nil {
		t.id = func(counter.Key) (none counter.ID) { return none }
	}
	for i := range t.part {
		t.part[i], _ = lru.NewWithEvict(inPart, t.removed) // fails only if the size is not positive
	}
	f := promauto.With(o.Registerer)
	t.evictions = f.NewCounter(prometheus.CounterOpts{
		Name: "edge_mitigation_records_evicted_total",
		Help: "Records evicted before their end because the table was full.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_mitigation_records",
		Help: "Mitigation records in memory, including lifts, records that a lift ended, and records that have just ended.",
	}, func() float64 { return float64(t.Len()) })
	return t
}

func (t *Table) of(k counter.Key) *lru.Cache[counter.Key, *heldRecord] { return t.part[k[0]%parts] }

func (t *Table) sameAs(k counter.Key) *atomic.Int32 {
	return &t.same[int(binary.LittleEndian.Uint16(k[8:]))%len(t.same)]
}

// May reports whether k may have a record. If not, Get returns nil.
func (t *Table) May(k counter.Key) bool { return t.sameAs(k).Load() > 0 }

func (t *Table) ofRule(fingerprint uint64) *atomic.Int32 {
	return &t.sameRule[fingerprint%uint64(len(t.sameRule))]
}

// MayRule reports whether a key of the rule with this fingerprint, which may be [AnyRule], may have a record.
func (t *Table) MayRule(fingerprint uint64) bool {
	return t.ofRule(fingerprint).Load() > 0 || t.ofRule(0).Load() > 0
}

// Get returns the record that mitigates k at now, or nil if k has none or acts returns false for it.
// acts must not use t. The record is never changed.
func (t *Table) Get(k counter.Key, now time.Time, acts func(*Record) bool) *Record {
	if !t.May(k) {
		return nil
	}
	part := t.of(k)
	h, ok := part.Peek(k)
	if !ok || h.Lifted || !now.Before(h.Deadline) {
		return nil
	}
	// Peek shares its lock with other readers, but does not make the record the most
	// recently used; once a second is enough for that.
	if second := now.Unix(); h.used.Load() != second && h.used.Swap(second) != second {
		part.Get(k)
	}
	if !acts(&h.Record) {
		return nil
	}
	h.acted.Add(1)
	return &h.Record
}

// Generation returns the generation of a mitigation of k that begins now. It is 0 unless t knows
// of a lift. A lift is remembered for MaxLifetime: see [Record.lift].
func (t *Table) Generation(k counter.Key) uint32 {
	if !t.lifted.Load() || !t.May(k) {
		return 0 // nearly always
	}
	if h, ok := t.of(k).Peek(k); ok {
		return h.next()
	}
	return 0
}

// next returns the generation of a mitigation that begins while r is known.
func (r Record) next() uint32 {
	if r.Lifted {
		return r.Generation + 1
	}
	return r.Generation
}

// Held returns the record of k that has not ended at now, whether of a mitigation or of a lift.
func (t *Table) Held(k counter.Key, now time.Time) (Record, bool) {
	r, ok := t.Last(k)
	if !ok || !now.Before(r.Deadline) {
		return Record{}, false
	}
	return r, true
}

// Take reports whether this is the first call of Take for the current mitigation of k.
func (t *Table) Take(k counter.Key) bool {
	if h, ok := t.of(k).Peek(k); !ok || h.taken.Load() {
		return false
	}
	t.mu.Lock() // Merge may be replacing the record
	defer t.mu.Unlock()
	h, ok := t.of(k).Peek(k)
	return ok && !h.taken.Swap(true)
}

// Last returns the record of k, even for some time after its end.
func (t *Table) Last(k counter.Key) (Record, bool) {
	h, ok := t.of(k).Peek(k)
	if !ok {
		return Record{}, false
	}
	return h.Record, true
}

// All returns the records that have not ended at now, in no particular order. The caller must not modify them. All
// locks one part of t at a time, only while it copies the pointers to its records.
func (t *Table) All(now time.Time) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, part := range t.part {
			for _, h := range part.Values() {
				if now.Before(h.Deadline) && !yield(&h.Record) {
					return
				}
			}
		}
	}
}

// Len returns the number of records, including those that have just ended.
func (t *Table) Len() (n int) {
	for _, part := range t.part {
		n += part.Len()
	}
	return n
}

// Merge merges r into t. It reports whether t changed, and returns the key of a record that was evicted before its end,
// or nil. Records may arrive in any order, and more than once.
//
// Of r and the key's record in t, the greater wins, by generation, lifted, end, node and start; of two copies, the
// earlier deadline applies. A winner without the rule gets that of the other record. If r wins and t's record has not
// ended, r also gets the client and the sample that it lacks; if t's record wins, it keeps its own, because r comes
// from an earlier request. If r is past its deadline, only the lift before it is merged. A copy of a record that has
// just ended in t changes nothing.
func (t *Table) Merge(r Record, now time.Time) (changed bool, evicted *counter.Key) {
	if latest := now.Add(min(r.Lifetime, MaxLifetime)); r.Deadline.After(latest) {
		r.Deadline = latest
	}
	if !now.Before(r.Deadline) {
		if r = r.lift(); !now.Before(r.Deadline) {
			return false, nil
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evicted = nil
	old, ok := t.of(r.Key).Peek(r.Key)
	if ok && !now.Before(old.Deadline.Add(kept)) {
		t.drop(old, now)
		old, ok = t.of(r.Key).Peek(r.Key)
	}
	if !ok {
		t.add(&heldRecord{Record: r}, now)
		return true, t.evicted
	}
	merged, changed := merge(old.Record, r, now)
	if !changed && merged.Deadline.Equal(old.Deadline) {
		return false, nil
	}
	h := &heldRecord{Record: merged}
	h.ID = old.ID
	if !old.over { // its end was not reported, and may never be
		h.acted.Store(old.acted.Load())
		h.taken.Store(old.taken.Load())
	}
	t.ofRule(old.Rule).Add(-1)
	t.forget(old)
	t.put(h, now)
	return changed, t.evicted
}

// add adds a record of a key that has none.
func (t *Table) add(h *heldRecord, now time.Time) {
	h.ID = t.id(h.Key)
	t.sameAs(h.Key).Add(1)
	t.put(h, now)
}

// put makes h the record of its key.
func (t *Table) put(h *heldRecord, now time.Time) {
	if !h.over {
		t.digest.toggle(h.Record)
	}
	if h.next() > 0 {
		t.lifted.Store(true)
	}
	t.ofRule(h.Rule).Add(1)
	h.Estimate = h.Why.estimate()
	h.used.Store(now.Unix())
	heap.Push(&t.due, h)
	t.of(h.Key).Add(h.Key, h) // may call removed for the least recently used
}

// Full reports whether a new record can be added only in place of another.
func (t *Table) Full() bool { return t.Len() >= t.size }

// forget removes h from due and from the digest.
func (t *Table) forget(h *heldRecord) {
	if h.at >= 0 {
		heap.Remove(&t.due, h.at)
	}
	t.end(h)
}

// end records that h has ended.
func (t *Table) end(h *heldRecord) {
	if !h.over {
		h.over = true
		t.digest.toggle(h.Record)
	}
}

// removed updates the counts, due and the digest for a record that has left its part. mu is held: only Merge and Expire
// remove records.
func (t *Table) removed(k counter.Key, h *heldRecord) {
	t.sameAs(k).Add(-1)
	t.ofRule(h.Rule).Add(-1)
	if h.at >= 0 {
		if !h.over {
			t.evictions.Inc()
			t.evicted = &h.Key
		}
		t.forget(h)
	}
}

// Expire ends the records that are past their deadline at now, passes those of mitigations to ended, and forgets
// records that ended some time ago. It returns the time of the next event, or the zero time if t is empty. A record
// that is merged later may end before that.
func (t *Table) Expire(now time.Time, ended func(Record)) (next time.Time) {
	var over []*heldRecord
	t.mu.Lock()
	for len(t.due) > 0 && next.IsZero() {
		h := t.due[0]
		switch until := h.until(); {
		case now.Before(until):
			next = until
		case h.over:
			t.drop(h, now)
		default:
			t.end(h)
			heap.Fix(&t.due, h.at)
			if !h.Lifted {
				over = append(over, h)
			}
		}
	}
	t.mu.Unlock()
	for _, h := range over {
		r := h.Record
		r.Acted = h.acted.Load()
		ended(r)
	}
	return next
}

// drop forgets a record, and keeps the lift that it implies: see Record.lift.
func (t *Table) drop(h *heldRecord, now time.Time) {
	t.forget(h)
	t.of(h.Key).Remove(h.Key)
	if lift := h.lift(); now.Before(lift.Deadline) {
		t.add(&heldRecord{Record: lift}, now)
	}
}

// expiry is a heap ordered by the time of the next event.
type expiry []*heldRecord

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].until().Before(e[j].until()) }
func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].at, e[j].at = i, j
}

func (e *expiry) Push(x any) {
	h := x.(*heldRecord)
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
