package async

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
	epoch uint32 // 1 more than that of the previous placement
	ring  *ring.Ring[*lane]
	all   []*lane // sorted by address
	in    []*lane // those that own keys
	past  []past  // former placements, newest first
}

// A past is a former placement.
type past struct {
	ring  *ring.Ring[*lane]
	until time.Time
}

const (
	// maxPast is how many former placements are remembered. Counts at a shard that owned a key
	// before the oldest are lost: the key passes more often, never less.
	maxPast = 8

	// settle is the maximum time until all nodes of the PoP have made the same change to the
	// shards. After that, the counts at former owners are final.
	settle = time.Second
)

// SetShards replaces the shards. The shards named in out own no keys for now. SetShards may be
// called at any time, and does nothing if nothing changes. Shards are identified by address.
//
// Requests that were not yet sent to a shard that is out or removed go to the key's new owner.
// Counts at the former owner stay there, and are added to those of the new owner for the rest of
// the window and the next one: the former owner is read for that, even if it was removed.
//
// All nodes of a PoP must make the same changes, each within a second of the first.
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
	p := &placement{epoch: before.epoch + 1, ring: new(ring.Ring[*lane]), all: lanes}
	for _, ln := range lanes {
		if named[ln.addr()] != nil {
			return fmt.Errorf("count: shard %s is listed twice", ln.addr())
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
	p.past = append([]past{{before.ring, c.o.Now()}}, before.past[:min(len(before.past), maxPast-1)]...)
	c.placed.Store(p)
	c.wakeUp()
	return nil
}

// owner returns the lane of the shard that owns t's key, or nil if no shard does. It uses the
// placement that move saw last, because keys queued in a lane of a newer one could be stranded if that
// is replaced before the next move. It updates t if the placement has changed.
func (c *Loop) owner(t *track, now time.Time) *lane {
	p := c.seen
	ln, err := p.ring.Owner(t.key)
	if err != nil {
		return nil
	}
	if t.placed == p.epoch {
		return ln
	}
	_, held := c.o.Table.Held(t.key, now)
	t.place(p, ln, now, settle+2*c.o.Interval, held)
	for _, f := range t.formers() {
		if now.Before(f.settled) {
			c.later.add(t, f.settled)
		}
	}
	return ln
}

// leave removes t from the lane in which it waits.
func (c *Loop) leave(t *track) {
	ln, err := c.seen.ring.Owner(t.key)
	if err != nil {
		ln = &c.unowned
	}
	ln.leave(t)
}

// Unavailable reports whether the shard that owns key is down or missing. The request path
// may call it: it only reads a table and a flag.
func (c *Loop) Unavailable(key counter.Key) bool {
	ln, err := c.placed.Load().ring.Owner(key)
	return err != nil || ln.shard.Down()
}

// A Load describes the load of a shard from this node.
type Load struct {
	Share   float64       // of all keys, from 0 to 1
	Waiting int           // keys that wait to be counted there
	Oldest  time.Duration // age of their oldest request
}

// Loads returns the load of each shard, by address.
func (c *Loop) Loads() map[string]Load {
	placed := c.placed.Load()
	loads, parts, owners := map[string]Load{}, map[*lane]int{}, placed.ring.Owners()
	for _, ln := range owners {
		parts[ln]++
	}
	for _, ln := range placed.all {
		loads[ln.addr()] = Load{float64(parts[ln]) / float64(max(1, len(owners))), int(ln.waits.Load()), c.age(ln.oldest.Load())}
	}
	return loads
}

// move queues waiting keys at their new owners if the placement has changed, and logs when the
// node starts or stops counting alone.
func (c *Loop) move(now time.Time) {
	p := c.placed.Load()
	if c.seen != p {
		var moved lane
		for _, ln := range append(slices.Clip(c.seen.all), &c.unowned) {
			for t := ln.pop(); t != nil; t = ln.pop() {
				moved.push(t)
			}
		}
		c.seen, c.lifting = p, now
		for t := moved.pop(); t != nil; t = moved.pop() {
			c.send(t, now)
		}
	}
	alone := !slices.ContainsFunc(p.in, func(ln *lane) bool { return !ln.shard.Down() })
	switch {
	case alone == c.alone:
	case alone:
		c.metrics.alone.Set(1)
		c.o.Logger.Warn("no shard is available: this node counts alone", "shards", len(p.in))
	default:
		c.metrics.alone.Set(0)
		c.o.Logger.Info("a shard is available: this node no longer counts alone")
	}
	c.alone = alone
}
