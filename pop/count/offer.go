package count

import (
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// An arrival identifies requests that are counted together: those of a key in a tick.
type arrival struct {
	key        counter.Key
	tick       int64  // start of the tick, in milliseconds since the Unix epoch
	generation uint32 // of the key when the request was decided: see track
}

// Lengths of a tick, in milliseconds. Windows begin at whole seconds, so a second lies in one
// window of each limit, and in one sub-window if sub-windows last whole seconds. Others need
// shorter ticks: a tick that spans two sub-windows counts in the earlier one, so some requests
// count as older than they are, and none as younger.
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

// offered is the requests of an arrival that wait to be counted.
type offered struct {
	rule   *rule.Rule
	n      uint64
	at     int64             // when the first request came, in microseconds since the Unix epoch
	sample mitigation.Sample // of the last request
}

// A begun is a mitigation that a request started on the node's own evidence.
type begun struct {
	record mitigation.Record
	rule   *rule.Rule
}

// maxBegun is how many mitigations requests may start before the loop handles them. The loop
// starts further ones.
const maxBegun = 1024

// Offer queues a request at now, to be counted by r under key. It never blocks. If the waiting
// requests and the known counts of the key together exceed a limit, Offer starts the mitigation
// itself. generation is how often the key's mitigation had been lifted when the request was
// decided: requests from before a lift are not counted.
func (c *Loop) Offer(r *rule.Rule, key counter.Key, generation uint32, sample mitigation.Sample, now time.Time) {
	var known evidence
	near := c.near.has(key)
	if near {
		known.of(c.peek(key), generation) // before the offer: the loop may count it at once
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

// begin starts a mitigation on the request path. The loop announces and stores it.
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

// An evidence holds the known counts of a key, without its waiting requests. It has room for the
// limits of an ordinary rule; further ones are left out.
type evidence struct {
	views [4]view
	n     int
}

// of copies the known counts of t, unless they are of another generation.
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

// with reports whether n more requests, which arrived at arrived, exceed a limit of r.
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
			continue // they came before this window: the loop evaluates them
		}
		v.Cur = v.limit.Layout.Add(v.Cur, v.limit.Delta(min(n, v.limit.Layout.Stop()), at))
		if v.over(elapsed) {
			over = true
			f.add(&v, elapsed, now)
		}
	}
	return f, over
}
