package count

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A view holds the counts of a limit's windows in one layout: its own, or an outdated one of the
// same period.
type view struct {
	counter.Windows[int64, uint64]
	limit counter.Limit
	old   *outdated // nil if the layout is the rule's
	told  int64     // of which time the counts of other nodes are, in microseconds
	of    int32     // the window of the limit
	fresh bool      // the previous window was not read yet
}

// views appends the counts of each limit to dst, in its layout and in each outdated one of its
// period. Requests from another layout never weigh more than if they had been counted in the
// view's own: see counter.Layout.From.
func (t *track) views(dst []view) []view {
	for i := range t.windows {
		w := &t.windows[i]
		if w.outdated() {
			continue
		}
		for j := range t.windows {
			o := &t.windows[j]
			if o.limit.Period != w.limit.Period {
				continue
			}
			v := view{limit: o.limit, old: o.old, told: t.told, of: int32(i), fresh: w.fresh}
			v.Index = w.Index
			for k := range t.windows {
				if each := &t.windows[k]; each.limit.Period == w.limit.Period && each.Index == w.Index {
					l := each.limit.Layout
					v.Prev = v.limit.Layout.Add(v.Prev, v.limit.Layout.From(l, each.Prev.known(l)))
					v.Cur = v.limit.Layout.Add(v.Cur, v.limit.Layout.From(l, each.Cur.known(l)))
				}
			}
			dst = append(dst, v)
		}
	}
	return dst
}

// ended reports whether the layout has ceased to matter at now.
func (v *view) ended(now time.Time) bool { return v.old != nil && !now.Before(v.old.until) }

// over reports whether the limit is exceeded at elapsed.
func (v *view) over(elapsed int64) bool { return v.limit.Over(v.Prev, v.Cur, elapsed) }

// back returns when the limit is no longer exceeded. elapsed is that of the window at now.
func (v *view) back(elapsed int64, now time.Time) time.Time {
	back := now.Add(time.Duration(v.limit.Back(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond)
	if v.old != nil && v.old.until.Before(back) {
		return v.old.until
	}
	return back
}

// A finding says that the counts of a key exceed a limit.
type finding struct {
	generation uint32         // of the counts
	back       time.Time      // when every limit is back at its threshold
	why        mitigation.Why // the limit that is back last
}

// add records that v is over its limit at now.
func (f *finding) add(v *view, elapsed int64, now time.Time) {
	if back := v.back(elapsed, now); back.After(f.back) {
		f.back = back
		f.why = mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed}
	}
}

const (
	// nearFraction: a key is near its threshold if at most an eighth of it is left. Its
	// requests are counted at once.
	nearFraction = 8

	// nearFlushes: a key is also near its threshold if this many flushes like the last one
	// would exceed it.
	nearFlushes = 4
)

// evaluate compares the estimate of each limit with its threshold at now and reports whether one
// is exceeded. n is the number of requests in this flush, 0 outside flushes. A request that is
// counted late weighs less, never more.
//
// If other nodes counted, one of them may have seen the limit exceeded since the last evaluation,
// when the previous window weighed more: then the record is read.
func (t *track) evaluate(now time.Time, n uint64) (f finding, over bool) {
	t.advance(now)
	if n > 0 {
		t.burst = n
	}
	t.mu.Lock()
	t.shown, t.shownOf = t.views(slices.Grow(t.shown[:0], len(t.windows))), t.generation
	t.mu.Unlock()
	f.generation = t.generation
	near := false
	for i := range t.shown {
		v := &t.shown[i]
		w := &t.windows[v.of]
		elapsed := w.now
		if v.over(elapsed) {
			over = true
			f.add(v, elapsed, now)
		} else if w.others && w.seen >= 0 && v.over(min(w.seen, elapsed)) {
			t.readRecord.Store(true)
		}
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		near = near || left <= max(v.limit.Threshold/nearFraction, nearFlushes*(max(t.burst, 1)-1))
	}
	t.near = near
	for i := range t.windows {
		if w := &t.windows[i]; !w.outdated() {
			w.seen, w.others = w.now, false
		}
	}
	return f, over
}

// shown appends the counts of a key at its last evaluation to dst, nothing if they are of another
// generation. The request path may call it.
func (c *Loop) shown(dst []view, key counter.Key, generation uint32) []view {
	if t := c.peek(key); t != nil {
		t.mu.Lock()
		if t.shownOf == generation {
			dst = append(dst, t.shown...)
		}
		t.mu.Unlock()
	}
	return dst
}

// A Quota is what a client may be told about one limit.
type Quota struct {
	Rule  *rule.Rule
	Limit rule.Limit

	// Known is whether the node has a current estimate. If not, only Rule and Limit are set.
	Known bool

	// Remaining is how many more requests may come now before the limit is exceeded.
	Remaining uint64

	// Reset is the time until Remaining changes if no more requests come: when the period
	// leaves or enters the oldest sub-window that counts, or the mitigation ends. With whole
	// windows it is the end of the current one.
	Reset time.Duration
}

// Remaining appends what is left of each limit of r under key at now to dst. The request path may
// call it.
func (c *Loop) Remaining(dst []Quota, r *rule.Rule, key counter.Key, now time.Time) []Quota {
	at := len(dst)
	for _, limit := range r.Limits {
		dst = append(dst, Quota{Rule: r, Limit: limit})
	}
	var room [4]view
	for _, v := range c.shown(room[:0], key, c.o.Table.Generation(key)) {
		index, elapsed := counter.Window(now, v.limit.Period)
		for i := range dst[at:] {
			q := &dst[at+i]
			v.limit.Threshold = q.Limit.Threshold // may have changed since
			n := v.limit.Remaining(v.Prev, v.Cur, elapsed)
			if q.Limit.Period.Microseconds() != v.limit.Period || v.Index != index || v.fresh || q.Known && q.Remaining <= n {
				continue
			}
			q.Known, q.Remaining = true, n
			q.Reset = time.Duration(v.limit.Falls(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond
		}
	}
	return dst
}
