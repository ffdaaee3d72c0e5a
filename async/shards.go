package async

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/ring"
)

// A Shard owns part of a PoP's counters, and the records alongside them. It is a client of a server, such as
// package wire's, or behaves like one. Its methods may be called concurrently.
type Shard interface {
	// Addr returns the shard's address. It determines which keys the shard owns, so it must be the same on every node.
	Addr() string

	// Down reports whether the shard gets only occasional probes because it failed or is
	// slow. The request path calls it, so it must not block.
	Down() bool

	// Available reports whether the shard accepts requests now.
	Available() bool

	// Exchange sends a batch to the shard and sets the outcomes. It blocks for a round trip.
	// An empty batch probes whether the shard answers.
	Exchange(*counter.Batch) error
}

// A lane holds the keys that have work for one shard: those near their threshold first, then the others, each in the
// order of arrival. A key is in at most one queue and one batch at a time, so each of its counters has at most one
// increment in flight.
type lane struct {
	shard  Shard
	queues [held + 1]list // keys, by place
	flying int            // batches in flight
	retry  time.Time      // when the shard may be asked again

	waiting atomic.Int64 // number of keys that wait for a batch
	oldest  atomic.Int64 // when their oldest request arrived, in microseconds; 0 if no key waits
}

func (ln *lane) addr() string { return ln.shard.Addr() }

// A place tells where a key waits for its shard: in one of the queues of a lane, in a batch, or nowhere.
type place uint8

const (
	nowhere  place = iota
	near           // in a queue for a batch: close to its threshold
	far            // in a queue for a batch
	held           // in a queue until its counts have waited for parentPause
	inFlight       // in a batch
	evicted        // no longer tracked
)

// A list is a linked list of keys. A key is in at most one list.
type list struct{ head, tail *track }

// push queues t for a batch, among the keys near their threshold if t is near. It does nothing if t is in flight or
// evicted.
func (ln *lane) push(t *track) {
	to := far
	if t.near {
		to = near
	}
	ln.move(t, to)
}

// move moves t to one of the queues, unless it is in flight or evicted.
func (ln *lane) move(t *track, to place) {
	if t.place == to || t.place >= inFlight {
		return
	}
	ln.leave(t)
	l := &ln.queues[to]
	if t.place, t.prev = to, l.tail; t.prev == nil {
		l.head = t
	} else {
		t.prev.next = t
	}
	l.tail = t
	if to != held {
		ln.waiting.Add(1)
	}
}

// pop removes and returns the next key, or nil if none waits.
func (ln *lane) pop() *track {
	t := cmp.Or(ln.queues[near].head, ln.queues[far].head)
	if t != nil {
		ln.leave(t)
	}
	return t
}

// leave removes t from its queue, if it is in one.
func (ln *lane) leave(t *track) {
	if t.place == nowhere || t.place >= inFlight {
		return
	}
	l := &ln.queues[t.place]
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	if t.place != held {
		ln.waiting.Add(-1)
	}
	t.place, t.prev, t.next = nowhere, nil, nil
}

// A placement maps keys to their owners. It is immutable.
type placement struct {
	ring  *ring.Ring[*lane]
	all   []*lane // sorted by address
	in    []*lane // those that own keys
	lanes []*lane // all, and Loop.unowned
}

// lane returns the lane of the shard that owns key, or nil if no shard does.
func (p *placement) lane(key counter.Key) *lane { return p.ring.Owner(key) }

// SetShards replaces the shards. The shards named in out own no keys for now. SetShards may be
// called at any time, and does nothing if nothing changes. Shards are identified by address.
//
// Requests that were not yet sent to a shard that is out or removed go to the key's new owner, where the counter starts
// with the greatest count that a shard told this node. All nodes of a PoP must make the same changes: while they
// differ, the counts of a key that moves are split.
func (c *Loop) SetShards(shards []Shard, out ...string) error {
	c.placing.Lock()
	defer c.placing.Unlock()
	known := c.placed.Load().all
	lanes := make([]*lane, len(shards))
	for i, s := range shards {
		lanes[i] = &lane{shard: s}
		if at := slices.IndexFunc(known, func(ln *lane) bool { return ln.shard == s }); at >= 0 {
			lanes[i] = known[at]
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.addr(), b.addr()) })
	return c.place(lanes, out)
}

// SetOut sets the shards that are out, by address; all others are in. See SetShards.
func (c *Loop) SetOut(names ...string) error {
	c.placing.Lock()
	defer c.placing.Unlock()
	return c.place(c.placed.Load().all, names)
}

// place changes the placement. c.placing must be held.
func (c *Loop) place(lanes []*lane, out []string) error {
	before, named := c.placed.Load(), make(map[string]*lane, len(lanes))
	p := &placement{ring: new(ring.Ring[*lane]), all: lanes, lanes: append(slices.Clip(lanes), &c.unowned)}
	for _, ln := range lanes {
		if named[ln.addr()] != nil {
			return fmt.Errorf("async: shard %s is listed twice", ln.addr())
		}
		named[ln.addr()] = ln
		if !slices.Contains(out, ln.addr()) {
			p.in = append(p.in, ln)
		}
	}
	if slices.Equal(p.all, before.all) && slices.Equal(p.in, before.in) {
		return nil
	}
	if err := p.ring.Set(named, out...); err != nil {
		return err
	}
	c.placed.Store(p)
	notify(c.wake)
	return nil
}

// lane returns the lane of the shard that owns key in the placement that move saw last. A key in a lane of a newer
// placement would be stranded if that is replaced before the next move.
func (c *Loop) lane(key counter.Key) *lane { return cmp.Or(c.seen.lane(key), &c.unowned) }

// Unavailable reports whether the shard that owns key is down or missing. The request path
// may call it: it only reads a table and a flag.
func (c *Loop) Unavailable(key counter.Key) bool {
	ln := c.placed.Load().lane(key)
	return ln == nil || ln.shard.Down()
}

// A Load describes the load of a shard from this node.
type Load struct {
	Share   float64       // of all keys, from 0 to 1
	Waiting int           // keys that wait to be counted there
	Oldest  time.Duration // age of the oldest request of these keys
}

// Loads returns the load of each shard, by address.
func (c *Loop) Loads() map[string]Load {
	placed := c.placed.Load()
	loads, parts, owners := map[string]Load{}, map[*lane]int{}, placed.ring.Owners()
	for _, ln := range owners {
		parts[ln]++
	}
	for _, ln := range placed.all {
		loads[ln.addr()] = Load{float64(parts[ln]) / float64(max(1, len(owners))), int(ln.waiting.Load()),
			c.age(ln.oldest.Load())}
	}
	return loads
}

// move queues waiting keys at their new owners if the placement has changed, schedules comparisons of records, and
// records whether the node counts alone.
func (c *Loop) move(now time.Time) {
	p := c.placed.Load()
	if before := c.seen; before != p {
		var moved lane
		for _, ln := range before.lanes {
			for i := range ln.queues {
				for t := ln.queues[i].head; t != nil; t = ln.queues[i].head {
					ln.leave(t)
					moved.push(t)
				}
			}
		}
		c.seen, c.former, c.moved = p, before, now
		for t := moved.pop(); t != nil; t = moved.pop() {
			c.send(t)
		}
		for r := range c.o.Table.All(now) {
			if before.lane(r.Key) != p.lane(r.Key) {
				c.uncompared = append(c.uncompared, r.Key)
			}
		}
	}
	alone := 1.0
	if slices.ContainsFunc(p.in, func(ln *lane) bool { return !ln.shard.Down() }) {
		alone = 0
	}
	c.metrics.alone.Set(alone)
}

// parentPause is how long counts of a network or label may wait. Waiting counts make the estimate too low, and shedding
// too lenient, so those of mitigated keys wait only if parentPause is at most 1/parentPart of the period.
const (
	parentPause = 100 * time.Millisecond
	parentPart  = 100
)

// holds reports whether the counts of t may wait. Only counts of a network or label may: while it is mitigated, or
// while the same count held back by every node would use at most half of the remaining requests of each limit.
func (c *Loop) holds(t *track, now time.Time) bool {
	if !t.rule.Parent() {
		return false
	}
	record, known := c.o.Table.Held(t.key, now)
	mitigated := known && !record.Lifted
	nodes := uint64(max(c.o.Nodes(), 1))
	windows := t.windows()
	for i := range windows {
		v, w := t.view(i), &windows[i]
		switch {
		case mitigated && v.limit.Period < parentPart*parentPause.Microseconds():
			return false
		case mitigated:
		case 2*nodes*v.limit.Layout.Sum(w.Cur.waiting) > v.limit.Remaining(v.Prev, v.Cur, w.elapsed(v.limit, now)):
			return false
		}
	}
	return true
}

// release queues keys whose counts have been held for long enough, and returns when to call it next. Keys do not wait
// longer because the clock was set back.
func (c *Loop) release(now time.Time) (next time.Time) {
	for _, ln := range c.seen.lanes {
		for t := ln.queues[held].head; t != nil; t = ln.queues[held].head {
			since := time.UnixMicro(t.since)
			if until := since.Add(parentPause); now.Before(until) && !since.After(now) && !c.ending {
				next = earlier(next, until)
				break
			}
			ln.push(t)
		}
	}
	return next
}
