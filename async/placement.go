package async

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/ring"
)

// A placement maps keys to their owners. It is immutable.
type placement struct {
	ring *ring.Ring[*lane]
	all  []*lane // sorted by address
	in   []*lane // those that own keys
}

// lane returns the lane of the shard that owns key, or nil if no shard does.
func (p *placement) lane(key counter.Key) *lane {
	ln, err := p.ring.Owner(key)
	if err != nil {
		return nil
	}
	return ln
}

// SetShards replaces the shards. The shards named in out own no keys for now. SetShards may be
// called at any time, and does nothing if nothing changes. Shards are identified by address.
//
// Requests that were not yet sent to a shard that is out or removed go to the key's new owner, where the counter
// starts with what this node knows that shards have counted. All nodes of a PoP must make the same changes: while they
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
	p := &placement{ring: new(ring.Ring[*lane]), all: lanes}
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
	c.placed.Store(p)
	c.wakeUp()
	return nil
}

// lane returns the lane of the shard that owns key. It uses the placement that move saw last, because keys queued in a
// lane of a newer one could be stranded if that is replaced before the next move.
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

// move queues waiting keys at their new owners if the placement has changed, has their records compared, and logs
// when the node starts or stops counting alone.
func (c *Loop) move(now time.Time) {
	p := c.placed.Load()
	if before := c.seen; before != p {
		var moved lane
		for _, ln := range append(slices.Clip(before.all), &c.unowned) {
			for t := ln.pop(); t != nil; t = ln.pop() {
				moved.push(t)
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
