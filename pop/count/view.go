package count

import (
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// A view holds the counts of a limit's windows in one layout: its own, or an outdated one of the
// same period.
type view struct {
	counter.Windows[int64, uint64]
	limit counter.Limit
	until time.Time // when the layout ceases to matter; zero: never
	of    int       // the window of the limit
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
			v := view{limit: o.limit, until: o.until, of: i, fresh: w.fresh}
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

// over reports whether the limit is exceeded at elapsed.
func (v *view) over(elapsed int64) bool { return v.limit.Over(v.Prev, v.Cur, elapsed) }

// back returns when the limit is no longer exceeded. elapsed is that of the window at now.
func (v *view) back(elapsed int64, now time.Time) time.Time {
	back := now.Add(time.Duration(v.limit.Back(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond)
	if !v.until.IsZero() && v.until.Before(back) {
		return v.until
	}
	return back
}

// A Finding says that the counts of a key exceed a limit.
type Finding struct {
	Generation uint32 // of the counts

	Back time.Time      // when every limit is back at its threshold
	Why  mitigation.Why // the limit that is back last
}

// add records that v is over its limit at now.
func (f *Finding) add(v *view, elapsed int64, now time.Time) {
	if back := v.back(elapsed, now); back.After(f.Back) {
		f.Back = back
		f.Why = mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed}
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
func (t *track) evaluate(now time.Time, n uint64) (f Finding, over bool) {
	t.advance(now)
	if n > 0 {
		t.burst = n
	}
	t.mu.Lock()
	t.shown, t.shownOf = t.views(t.shown[:0]), t.generation
	t.mu.Unlock()
	f.Generation = t.generation
	near := false
	for i := range t.shown {
		v := &t.shown[i]
		w := &t.windows[v.of]
		elapsed := w.at(now)
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
			w.seen, w.others = w.at(now), false
		}
	}
	return f, over
}

// A Remaining is what is left of a limit.
type Remaining struct {
	Period   time.Duration
	Requests uint64        // how many more may come now before the limit is exceeded
	Falls    time.Duration // until the estimate falls, if no more requests come
}

// Remaining appends what is left of a key's limits at now to dst. Limits without a known estimate
// are left out. The request path may call it.
func (c *Loop) Remaining(dst []Remaining, key counter.Key, now time.Time) []Remaining {
	t := c.peek(key)
	if t == nil {
		return dst
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shownOf < c.o.Table.Generation(key) {
		return dst // it was lifted since
	}
	last := -1
	for i := range t.shown {
		v := &t.shown[i]
		index, elapsed := counter.Window(now, v.limit.Period)
		if v.Index != index || v.fresh {
			continue
		}
		n := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		if v.of == last && n >= dst[len(dst)-1].Requests {
			continue
		}
		r := Remaining{time.Duration(v.limit.Period) * time.Microsecond, n, time.Duration(v.limit.Falls(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond}
		if v.of == last {
			dst[len(dst)-1] = r
		} else {
			dst = append(dst, r)
		}
		last = v.of
	}
	return dst
}
