package count

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/ring"
)

// A placement maps keys to their owners, present and former. It is immutable.
type placement struct {
	change uint64 // 1 for the first placement, one more for each after it
	ring   *ring.Ring[*lane]
	all    []*lane // sorted by address
	in     []*lane // those that own keys
	out    []string
	past   []past // the last changes, newest first
}

// A past is a former placement.
type past struct {
	ring  *ring.Ring[*lane]
	until time.Time
}

// maxPast is how many former placements are remembered. Counts at a shard that owned a
// key before the oldest are lost: the key passes more often, never less.
const maxPast = 8

// SetShards replaces the shards. The shards named in out own no keys for now. SetShards may be
// called at any time, and does nothing if nothing changes. Shards are told apart by address.
//
// Requests that were not yet sent to a shard that is out or removed go to the key's new owner.
// Counts at the former owner stay there, and are added to those of the new owner for the rest of
// the window and the next one: the former owner is read for that, even if it was removed.
//
// All nodes of a PoP must make the same changes, each within Options.Settle of the first.
func (c *Loop) SetShards(shards []Shard, out ...string) error {
	c.members.Lock()
	defer c.members.Unlock()
	before := c.placed.Load()
	var known []*lane
	if before != nil {
		known = before.all
	}
	lanes := make([]*lane, 0, len(shards))
	for _, s := range shards {
		i := slices.IndexFunc(known, func(ln *lane) bool { return ln.shard == s })
		if i >= 0 {
			lanes = append(lanes, known[i])
		} else {
			lanes = append(lanes, &lane{shard: s})
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.addr(), b.addr()) })
	for i := range lanes[:max(0, len(lanes)-1)] {
		if lanes[i].addr() == lanes[i+1].addr() {
			return fmt.Errorf("count: shard %s is listed twice", lanes[i].addr())
		}
	}
	return c.place(lanes, out)
}

// SetOut sets the shards that are out, by address; all others are in. See SetShards.
func (c *Loop) SetOut(names ...string) error {
	c.members.Lock()
	defer c.members.Unlock()
	return c.place(c.placed.Load().all, names)
}

// place changes the placement. members must be held.
func (c *Loop) place(lanes []*lane, out []string) error {
	out = slices.DeleteFunc(slices.Clone(out), func(name string) bool {
		return !slices.ContainsFunc(lanes, func(ln *lane) bool { return ln.addr() == name })
	})
	slices.Sort(out)
	out = slices.Compact(out)
	before := c.placed.Load()
	if before != nil && slices.Equal(lanes, before.all) && slices.Equal(out, before.out) {
		return nil
	}
	p := &placement{change: 1, ring: new(ring.Ring[*lane]), all: lanes, out: out}
	named := make(map[string]*lane, len(lanes))
	for _, ln := range lanes {
		named[ln.addr()] = ln
		if !slices.Contains(out, ln.addr()) {
			p.in = append(p.in, ln)
		}
	}
	if err := p.ring.Set(named, out...); err != nil {
		return err
	}
	if before != nil {
		p.change = before.change + 1
		p.past = append([]past{{before.ring, c.o.Now()}}, before.past[:min(len(before.past), maxPast-1)]...)
	}
	c.placed.Store(p)
	c.wakeUp()
	return nil
}

// owner returns the lane of the shard that owns t's key, nil if there is none. It updates t if
// the placement has changed.
func (c *Loop) owner(t *track, now time.Time) *lane {
	p := c.placed.Load()
	ln, err := p.ring.Owner(t.key)
	if err != nil {
		return nil
	}
	if t.change == p.change {
		return ln
	}
	_, held := c.o.Table.Held(t.key, now)
	t.place(p, ln, now, c.o.Settle+2*c.o.Interval, held)
	for i := range t.formers {
		if f := &t.formers[i]; now.Before(f.settled) {
			c.later.add(t, f.settled)
		}
	}
	for i := range t.windows {
		if w := &t.windows[i]; w.outdated() && now.Before(w.settled) {
			c.later.add(t, w.settled)
		}
	}
	return ln
}

// Unavailable reports whether the shard that owns key is down or missing. The request path
// may call it: it only reads a table and a flag.
func (c *Loop) Unavailable(key counter.Key) bool {
	ln, err := c.placed.Load().ring.Owner(key)
	return err != nil || ln.shard.Down()
}

// move queues waiting keys at their new owners if the placement has changed, and logs when the
// node begins or ceases to count alone.
func (c *Loop) move(now time.Time) {
	p := c.placed.Load()
	if c.seen != p {
		var moved list
		for _, ln := range c.lanes() {
			for t := ln.pop(); t != nil; t = ln.pop() {
				moved.push(t)
			}
		}
		for t := c.nowhere.pop(); t != nil; t = c.nowhere.pop() {
			moved.push(t)
		}
		c.seen, c.lifting = p, now
		for t := moved.head; t != nil; t = moved.head {
			t.leave()
			c.send(t, now)
		}
	}
	alone := true
	for _, ln := range p.in {
		alone = alone && ln.shard.Down()
	}
	switch was := c.alone.Swap(alone); {
	case alone && !was:
		c.o.Logger.Warn("no shard is available: this node counts alone", "shards", len(p.in))
	case was && !alone:
		c.o.Logger.Info("a shard is available: this node no longer counts alone")
	}
}

// lanes returns the lanes of the placement that the loop has seen, nil before the first.
func (c *Loop) lanes() []*lane {
	if c.seen == nil {
		return nil
	}
	return c.seen.all
}
