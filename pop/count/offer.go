package count

import (
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// An arrival is what is counted together: a key in a tick.
type arrival struct {
	key        counter.Key
	tick       int64  // when it begins, in milliseconds since the Unix epoch
	generation uint32 // of the key when the request was decided: see track
}

// ticks of a rule, in milliseconds. Windows begin at whole seconds, so that a second lies in
// one window of each limit, and in one sub-window where those last whole seconds too. Others
// need shorter ticks: one that the edge of two sub-windows cuts counts in the earlier one,
// so that some requests are taken for older than they are, and none for younger.
const (
	longTick  = 1000
	shortTick = 10
)

// tickOf returns the tick in which a request that r counts arrives at now.
func tickOf(r *rule.Rule, now time.Time) int64 {
	for i := range r.Limits {
		if n := r.Limits[i].SubWindows; n > 1 && r.Limits[i].Period%(time.Duration(n)*time.Second) != 0 {
			ms := now.UnixMilli()
			return ms - ms%shortTick
		}
	}
	return now.Unix() * longTick
}

// offered is what waits to be counted.
type offered struct {
	rule   *rule.Rule
	n      uint64
	at     int64             // when the first request came, in microseconds since the Unix epoch
	sample mitigation.Sample // of the last request
}

// A begun is a mitigation that a request has started on its own evidence.
type begun struct {
	record mitigation.Record
	rule   *rule.Rule
}

// maxBegun is how many mitigations requests start before the loop takes note of them. Further
// ones are started by the loop.
const maxBegun = 1024

// Offer queues a request to be counted at now, by r under a key. It never blocks. If what waits
// of the key exceeds a limit together with what is known of it, the request starts the
// mitigation by itself. generation is how often the key's mitigation had been lifted when the
// request was decided: what came before a lift is not counted.
func (c *Loop) Offer(r *rule.Rule, key counter.Key, generation uint32, sample mitigation.Sample, now time.Time) {
	var known evidence
	near := c.near.has(key)
	if near {
		known.of(c.peek(key), generation) // before the offer, which the loop may take at once
	}
	what := arrival{key: key, tick: tickOf(r, now), generation: generation}
	waiting, ok := c.queue.Offer(what, offered{rule: r, n: 1, at: now.UnixMicro(), sample: sample}, near)
	if !ok {
		c.metrics.dropped[dropQueue].Add(float64(len(r.Limits)))
		return
	}
	if waiting < 2 || r.OnFailure == rule.FailOpen && c.Unavailable(key) {
		return
	}
	if f, over := known.with(r, uint64(waiting), time.UnixMilli(what.tick), now); over {
		f.Generation = generation
		c.begin(key, r, f, sample, now)
	}
}

// begin starts a mitigation on the path of a request. The loop does what else belongs to it.
func (c *Loop) begin(key counter.Key, r *rule.Rule, f Finding, sample mitigation.Sample, now time.Time) {
	c.shared.Lock()
	room := len(c.begun) < maxBegun
	c.shared.Unlock()
	if !room {
		return
	}
	var kept mitigation.Sample
	keep(&kept, &sample)
	record, ok := c.o.Exceeded(key, r, f, &kept, now)
	if !ok {
		return
	}
	c.shared.Lock()
	c.begun = append(c.begun, begun{record, r})
	c.shared.Unlock()
	c.wakeUp()
}

// An evidence is what is known of a key before its requests that wait. It has room for the
// limits of an ordinary rule; of others less is known.
type evidence struct {
	views [4]view
	n     int
}

// of takes in what is known of t, unless it is of another generation.
func (e *evidence) of(t *track, generation uint32) {
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.shownOf == generation {
		e.n = copy(e.views[:], t.shown)
	}
	t.mu.Unlock()
}

// with reports whether a limit of r is exceeded with n more requests, which arrived at a time.
func (e *evidence) with(r *rule.Rule, n uint64, arrived, now time.Time) (f Finding, over bool) {
	for i := range r.Limits {
		v := view{limit: r.Limits[i].Counted()}
		var elapsed int64
		v.Index, elapsed = counter.Window(now, v.limit.Period)
		index, at := counter.Window(arrived, v.limit.Period)
		for j := range e.views[:e.n] {
			if known := &e.views[j]; sameCounters(known.limit, v.limit) {
				before := known.Windows
				before.Roll(v.Index)
				if before.Index == v.Index {
					v.Prev, v.Cur = before.Prev, before.Cur
				}
			}
		}
		if index != v.Index {
			continue // they came before this window: the loop knows how they weigh
		}
		v.Cur = v.limit.Layout.Add(v.Cur, v.limit.Delta(min(n, v.limit.Layout.Stop()), at))
		if v.over(elapsed) {
			over = true
			f.add(&v, elapsed, now)
		}
	}
	return f, over
}
