package async

import (
	"math"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A view holds the counts of a limit's windows.
type view struct {
	counter.Windows[int64, uint64]
	limit   counter.Limit
	fresh   bool   // the previous window was not read yet
	gap     uint64 // how many requests other nodes have probably counted since the last reply
	knownAt stamp  // of the track
}

// view returns the counts of the ith limit of t.
func (t *track) view(i int) view {
	w, limit := &t.windows()[i], t.limit(i)
	v := view{limit: limit, fresh: w.fresh, gap: uint64(w.Cur.gap), knownAt: t.knownAt}
	v.Index, v.Prev, v.Cur = int64(w.Index), w.Prev.all(limit.Layout), w.Cur.all(limit.Layout)
	return v
}

// views appends the counts of a key to dst, or nothing if they belong to another generation. Requests may call it.
func (c *Loop) views(dst []view, key counter.Key, generation uint32) []view {
	part := c.lock(key)
	defer part.mu.Unlock()
	return part.views(dst, key, generation)
}

// views does the work of Loop.views. p.mu must be held.
func (p *part) views(dst []view, key counter.Key, generation uint32) []view {
	if t := p.find(key); t != nil && t.generation == generation {
		for i := range t.windows() {
			dst = append(dst, t.view(i))
		}
	}
	return dst
}

// over reports whether the limit is exceeded at elapsed.
func (v *view) over(elapsed int64) bool { return v.limit.Over(v.Prev, v.Cur, elapsed) }

// A finding says that the counts of a key exceed a limit.
type finding struct {
	generation uint32         // that the counts belong to
	back       time.Time      // when every limit is back at its threshold
	why        mitigation.Why // the limit that is back last
}

// add records that v is over its limit at now.
func (f *finding) add(v *view, elapsed int64, now time.Time) {
	back := now.Add(time.Duration(v.limit.Back(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond)
	if back.After(f.back) {
		f.back = back
		f.why = mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed}
	}
}

const (
	// nearFraction: a key is near its threshold if at most an eighth of the threshold, or nearLeft, is left. Its requests
	// are counted immediately.
	nearFraction = 8
	nearLeft     = 2

	// nearFlushes: a key is also near its threshold if this many flushes like the last one would exceed it. One request of
	// each flush is left out, so that single requests do not make a key near.
	nearFlushes = 4
)

// evaluate starts the mitigation of t, which must be up to date, if a limit is exceeded. arrived is when the oldest
// request arrived that may have exceeded it, in microseconds.
func (c *Loop) evaluate(t *track, arrived int64, now time.Time) {
	r, was := t.rule, t.near
	f, over := t.evaluate(now)
	if t.near && r.Action == rule.Shed { // it is not urgent to notice that a key that sheds exceeds a limit
		held, ok := c.o.Table.Held(t.key, now)
		t.near = !ok || held.Lifted
	}
	switch {
	case t.near:
		for i := range r.Limits {
			c.near.set(t.key, now.Add(2*r.Limits[i].Period))
		}
	case was:
		c.near.clear(t.key)
	}
	if !over || r.OnFailure == rule.FailOpen && c.Unavailable(t.key) || r.MinClients > 1 && t.clients() < r.MinClients {
		return // t is evaluated again when the shard has answered, or with the next count
	}
	sample := t.sample()
	sample.At = arrived
	c.mitigate(t.key, r, f, &sample, math.MaxInt, now)
}

// evaluate compares the estimate of each limit with its threshold at now and reports whether one is exceeded. A request
// that is counted late weighs less, never more.
//
// If other nodes have counted, one of them may have seen the limit exceeded since the last answer, when the previous
// window weighed more: then the record is read.
func (t *track) evaluate(now time.Time) (f finding, over bool) {
	f.generation, t.near = t.generation, false
	windows := t.windows()
	for i := range windows {
		v, w := t.view(i), &windows[i]
		elapsed := w.elapsed(v.limit, now)
		if v.over(elapsed) {
			over = true
			f.add(&v, elapsed, now)
		} else if w.others && w.seen != unseen && v.over(min(int64(w.seen)*1000, elapsed)) {
			t.readRecord.Store(true)
		}
		if t.news {
			w.seen, w.others = uint32(elapsed/1000), false
		}
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		t.near = t.near || left <= max(v.limit.Threshold/nearFraction, nearLeft, nearFlushes*(uint64(max(t.burst, 1))-1))
	}
	return f, over
}

// A Quota describes what is left of one limit, for the client.
type Quota struct {
	Rule  *rule.Rule
	Limit rule.Limit

	// Known reports whether the node has a current estimate. If not, only Rule and Limit are set.
	Known bool

	// Remaining is how many more requests the limit allows now, as far as the node can tell: see [Loop.Remaining].
	Remaining uint64

	// Reset is the time until Remaining changes if no more requests come: when the period
	// leaves or enters the oldest sub-window that counts, or the mitigation ends. With whole
	// windows it is the end of the current one.
	Reset time.Duration
}

// A Passing is a request that passes. Its answer, at Now, tells the client what is left.
type Passing struct {
	Cost         uint64
	Arrived, Now time.Time // Arrived is zero if no request passes
}

// Remaining appends to dst what p leaves of each limit of r under key. Until a shard answers for requests as recent as
// p, p itself may not be counted, and other nodes may have counted more: they are assumed to have counted as much as
// between the last two answers. So even clients that send each request to a different node are not told too much. The
// request path may call Remaining.
func (c *Loop) Remaining(dst []Quota, r *rule.Rule, key counter.Key, p Passing) []Quota {
	now := p.Now
	at := len(dst)
	for _, limit := range r.Limits {
		dst = append(dst, Quota{Rule: r, Limit: limit})
	}
	var room [4]view
	for _, v := range c.views(room[:0], key, c.o.Table.Generation(key)) {
		index, elapsed := counter.Window(now, v.limit.Period)
		for i := range dst[at:] {
			q := &dst[at+i]
			v.limit.Threshold = q.Limit.Threshold // may have changed since
			n := v.limit.Remaining(v.Prev, v.Cur, elapsed)
			late := v.knownAt == 0 || int32(v.knownAt-stampOf(p.Arrived)) < 0 || !p.Arrived.Before(now)
			if late && !p.Arrived.IsZero() {
				n -= min(n, p.Cost+v.gap)
			}
			if q.Limit.Period.Microseconds() != v.limit.Period || v.Index != index || v.fresh {
				continue
			}
			q.Known, q.Remaining = true, n
			q.Reset = time.Duration(v.limit.Falls(v.Prev, v.Cur, elapsed)-elapsed) * time.Microsecond
		}
	}
	return dst
}
