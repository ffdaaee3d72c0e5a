package async

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// An item holds requests that wait to be counted together: those of a key in a tick.
type item struct {
	key        counter.Key
	tick       int64  // start of the tick, in milliseconds since the Unix epoch
	generation uint32 // of the key when the requests looked it up: see track
	added      bool   // to the counts of the key's track; guarded by the mu of the track's part

	rule   *rule.Rule
	n      uint64
	at     int64             // when the first request arrived, in microseconds since the Unix epoch
	sample mitigation.Sample // of the last request

	clients ClientSet // if the rule has MinClients
}

// arrivals is the number of requests of a key that arrived in a tick.
type arrivals struct {
	tick int64 // start of the tick, in milliseconds since the Unix epoch
	n    uint64
}

// Lengths of a tick, in milliseconds. Windows begin at whole seconds, so a second lies in one window of each limit, and
// in one sub-window if sub-windows last whole seconds. Other sub-windows need shorter ticks: a tick that spans two of
// them counts in the earlier one, so some requests count as older than they are, and none as younger.
const (
	longTick  = 1000
	ShortTick = 10
)

// tickOf returns the start of the tick for a request that arrives at now and that r counts.
func tickOf(r *rule.Rule, now time.Time) int64 {
	for i := range r.Limits {
		if n := r.Limits[i].SubWindows; n > 1 && r.Limits[i].Period%(time.Duration(n)*time.Second) != 0 {
			ms := now.UnixMilli()
			return ms - ms%ShortTick
		}
	}
	return now.Unix() * longTick
}

// A nearSet records which keys are near a threshold, each until its counts leave their windows, in seconds since the
// Unix epoch. Several keys share an element, so has may be wrong. A false positive costs one needless check and an
// early flush. After a false negative, the flush is late, and the loop, not Offer, starts the mitigation. This is rare:
// only a key that was itself near clears its element, and near keys set it again whenever they are evaluated, or while
// many of their requests wait. Only the loop clears elements.
type nearSet [1 << 16]atomic.Uint32

func (s *nearSet) of(k counter.Key) *atomic.Uint32 { return &s[binary.LittleEndian.Uint16(k[8:])] }

func (s *nearSet) has(k counter.Key, now time.Time) bool { return int64(s.of(k).Load()) > now.Unix() }

func (s *nearSet) set(k counter.Key, until time.Time) {
	if place, second := s.of(k), uint32(until.Unix()); second > place.Load() {
		place.Store(second)
	}
}

func (s *nearSet) clear(k counter.Key) { s.of(k).Store(0) }

// Offer queues a request at now, to be counted n times by r under key. It never blocks. If the waiting requests and the
// known counts of the key together exceed a limit, Offer starts the mitigation itself. So near a threshold, the node
// lets at most one request too many through, by its own counts. generation is how often the key's mitigation had been
// lifted when the limiter looked up the key. Requests from before a lift are not counted.
//
// within reports whether the requests up to this one, in the order of counting, exceed no limit. It is false if only
// the loop can tell.
func (c *Loop) Offer(r *rule.Rule, key counter.Key, generation uint32, from *mitigation.Sample, n uint64,
	now time.Time) (within bool) {
	more := item{key: key, tick: tickOf(r, now), generation: generation, rule: r, n: n, at: now.UnixMicro(), sample: *from}
	if r.MinClients > 1 {
		more.clients = ClientSetOf(c.o.Secret, c.o.Client.Client(from.Client))
	}
	var (
		near  bool
		known []view
		views [4]view     // enough for ordinary rules
		ticks [8]arrivals // enough unless flushes are late
	)
	waiting := ticks[:0]
	if !c.queue.offer(&more, func(s *stripe) (urgent bool) {
		near = c.near.has(key, now)
		if near || s.flushing {
			part := c.lock(key)
			known = part.views(views[:0], key, generation)
			if s.flushing { // a burst must not pass because a flush splits it
				waiting = s.spare.unseen(waiting, &more)
			}
			part.mu.Unlock()
		}
		waiting = s.queued.unseen(waiting, &more)
		return near
	}) {
		c.metrics.dropped[dropQueue].Add(float64(n) * float64(len(r.Limits)))
		return false
	}
	sum := uint64(0)
	for _, tick := range waiting {
		sum += tick.n
	}
	many := func(l rule.Limit) bool { return sum > max(l.Threshold/nearFraction, 1) }
	if !near && slices.ContainsFunc(r.Limits, many) {
		// Further requests read the known counts, since they may exceed a limit before the loop evaluates the key.
		c.near.set(key, now.Add(time.Second))
	}
	enough := slices.ContainsFunc(r.Limits, func(l rule.Limit) bool { return sum > l.Threshold })
	switch {
	case r.MinClients > 1, r.OnFailure == rule.FailOpen && c.Unavailable(key):
		return false // only the loop can tell
	case len(known) == 0 && !enough:
		return r.Action != rule.Shed
	}
	f, over := exceeds(known, r, waiting, now)
	if over {
		f.generation = generation
		more.sample.At = more.at
		c.mitigate(key, r, f, &more.sample, maxChanges, now)
	}
	return !over && r.Action != rule.Shed
}

// exceeds reports whether the waiting requests exceed a limit of r together with the known counts, if any. It changes
// known.
func exceeds(known []view, r *rule.Rule, waiting []arrivals, now time.Time) (f finding, over bool) {
	if len(known) == 0 {
		var room [4]view
		known = room[:0]
		for i := range r.Limits {
			known = append(known, view{limit: r.Limits[i].Counted()})
		}
	}
	for i := range known {
		v := &known[i]
		nth := periodOf(r, v.limit.Period)
		if nth < 0 {
			continue
		}
		limit := r.Limits[nth].Counted()
		index, elapsed := counter.Window(now, v.limit.Period)
		v.Roll(index)
		if limit.Layout != v.limit.Layout || v.Index != index {
			continue // the rules or the clock changed: the loop evaluates the requests
		}
		v.limit = limit
		for _, tick := range waiting {
			index, at := counter.Window(time.UnixMilli(tick.tick), v.limit.Period)
			if count := v.At(index); count != nil {
				*count = limit.Layout.Add(*count, limit.Delta(min(tick.n, limit.Layout.Stop()), at))
			}
		}
		if v.over(elapsed) {
			over = true
			f.add(v, elapsed, now)
		}
	}
	return f, over
}

// A Near describes a key that is not mitigated but has at most an eighth of a threshold left.
type Near struct {
	Key            counter.Key
	Rule           *rule.Rule
	Client         netip.Addr // of the key's last request; invalid unless Options.LogClients is set
	mitigation.Why            // the limit that the key is nearest to, with its counts
	Remaining      uint64
}

// Near returns at most n keys near their threshold, as far as this node knows, nearest first. It waits for the loop,
// which scans a part of its keys at a time, and returns nil if ctx is done first. Give ctx a deadline: if Run has
// stopped, Near would block forever.
func (c *Loop) Near(ctx context.Context, n int) (all []Near) {
	left := func(found *Near) float64 { return float64(found.Remaining) / float64(found.Limit.Threshold) }
	for i := range c.tracks {
		looked := make(chan struct{})
		look := func() {
			now := c.o.Now()
			for t := range c.tracks[i].all {
				if found, ok := c.nearOf(t, now); ok {
					all = append(all, found)
				}
			}
			close(looked)
		}
		select {
		case c.calls <- look:
			<-looked
		case <-ctx.Done():
			return nil
		}
		slices.SortFunc(all, func(a, b Near) int {
			return cmp.Or(cmp.Compare(left(&a), left(&b)), slices.Compare(a.Key[:], b.Key[:]))
		})
		all = all[:min(n, len(all))]
	}
	return all
}

// nearOf returns the state of t for the limit that it is nearest to, or false if it is not near any.
func (c *Loop) nearOf(t *track, now time.Time) (found Near, ok bool) {
	if !t.near {
		return found, false
	}
	r := c.rules.Load().Current(t.rule)
	if r == nil || t.generation != c.o.Table.Generation(t.key) {
		return found, false
	}
	if record, held := c.o.Table.Held(t.key, now); held && !record.Lifted && Acts(r, &record) {
		return found, false
	}
	for i := range t.windows() {
		v := t.view(i)
		index, elapsed := counter.Window(now, v.limit.Period)
		v.Roll(index)
		left := v.limit.Remaining(v.Prev, v.Cur, elapsed)
		if left > v.limit.Threshold/nearFraction || ok && left >= found.Remaining {
			continue
		}
		found, ok = Near{Key: t.key, Rule: r, Why: mitigation.Why{Limit: v.limit, Prev: v.Prev, Cur: v.Cur, Elapsed: elapsed},
			Remaining: left}, true
	}
	if c.o.LogClients {
		found.Client = t.lastClient()
	}
	return found, ok
}
