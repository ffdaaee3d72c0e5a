package limit

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/ring"
)

// A placement says which shard owns which keys, and which ones did. It never changes.
type placement struct {
	change uint64 // 1 for the first placement, one more for each after it
	ring   *ring.Ring[*lane]
	in     []*lane // that own something
	past   []past  // the last changes, the newest first
}

// A past is a placement that holds no more.
type past struct {
	ring  *ring.Ring[*lane]
	until time.Time
}

// maxPast is how many former placements are remembered. Counts at a shard that owned a
// key before the oldest are forgotten: the key passes more often, never less.
const maxPast = 8

// newPlacement places keys on those of lanes that out does not name. before may be nil.
func newPlacement(lanes []*lane, out []string, before *placement, now time.Time) (*placement, error) {
	p := &placement{change: 1, ring: new(ring.Ring[*lane])}
	named := make(map[string]*lane, len(lanes))
	for _, ln := range lanes {
		named[ln.shard.Addr()] = ln
		if !slices.Contains(out, ln.shard.Addr()) {
			p.in = append(p.in, ln)
		}
	}
	if err := p.ring.Set(named, out...); err != nil {
		return nil, err
	}
	if before != nil {
		p.change = before.change + 1
		p.past = append([]past{{before.ring, now}}, before.past[:min(len(before.past), maxPast-1)]...)
	}
	return p, nil
}

// SetShards replaces the shards by those given, of which the named ones are out: they own
// no keys for now. It may be called at any time, and does nothing if nothing changes. A
// shard is known by its address.
//
// What was not sent to a shard that is out, or no longer among the shards, goes to the
// key's new owner. What the former owner has counted stays there, and is added to what the
// new one counts for the rest of the window and the next one: it is asked for that, also
// if it is no longer among the shards.
//
// All nodes of a PoP are to make the same changes, each within Options.Settle of the first.
func (l *Limiter) SetShards(shards []Shard, out ...string) error {
	l.members.Lock()
	lanes, err := l.lanesOf(shards)
	if err == nil {
		err = l.setLocked(lanes, out)
	}
	l.members.Unlock()
	l.place()
	return err
}

// SetOut says which of the shards are out, by address; all others are in. See SetShards.
func (l *Limiter) SetOut(names ...string) error {
	l.members.Lock()
	err := l.setLocked(l.lanes, names)
	l.members.Unlock()
	l.place()
	return err
}

// lanesOf returns the lanes of shards in the order of their addresses, those that there
// are already and new ones. members is held.
func (l *Limiter) lanesOf(shards []Shard) ([]*lane, error) {
	lanes := make([]*lane, 0, len(shards))
	for _, s := range shards {
		i := slices.IndexFunc(l.lanes, func(ln *lane) bool { return ln.shard == s })
		if i >= 0 {
			lanes = append(lanes, l.lanes[i])
		} else {
			lanes = append(lanes, newLane(s, l.laneSize()))
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.shard.Addr(), b.shard.Addr()) })
	unique := slices.CompactFunc(slices.Clone(lanes), func(a, b *lane) bool { return a.shard.Addr() == b.shard.Addr() })
	if len(unique) < len(lanes) {
		return nil, errors.New("limit: a shard is given twice")
	}
	return lanes, nil
}

// laneSize returns how many keys wait in a lane at most.
func (l *Limiter) laneSize() int { return max(minLaneSize, l.o.TrackedKeys) }

// setLocked changes the placement. members is held.
func (l *Limiter) setLocked(lanes []*lane, out []string) error {
	out = slices.DeleteFunc(slices.Clone(out), func(name string) bool {
		return !slices.ContainsFunc(lanes, func(ln *lane) bool { return ln.shard.Addr() == name })
	})
	slices.Sort(out)
	out = slices.Compact(out)
	before := l.placed.Load()
	if before != nil && slices.Equal(lanes, l.lanes) && slices.Equal(out, l.out) {
		return nil
	}
	p, err := newPlacement(lanes, out, before, l.o.Now())
	if err != nil {
		return err
	}
	for _, ln := range lanes {
		switch {
		case slices.Contains(l.lanes, ln):
		case l.start != nil:
			l.start(ln)
		case l.ends:
			ln.close() // nobody works there: see serve
		}
	}
	was := l.lanes
	l.lanes, l.out = lanes, out
	l.placed.Store(p)
	for _, ln := range was {
		if slices.Contains(lanes, ln) {
			ln.wakeAll()
		} else {
			ln.close()
		}
	}
	return nil
}

// place sends the keys that have waited for a shard to be in on their way, and notices
// whether there is one now.
func (l *Limiter) place() {
	for _, t := range l.nowhere.discard() {
		l.send(t)
	}
	l.checkAlone()
}

// owner returns the lane of the shard that owns t's key, nil if there is none. t is busy;
// it is told if the owner is another one than before.
func (l *Limiter) owner(t *track) (p *placement, ln *lane) {
	p = l.placed.Load()
	ln, err := p.ring.Owner(t.key)
	if err != nil {
		return p, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.change == p.change {
		return p, ln
	}
	now := l.o.Now()
	_, held := l.o.Table.Held(t.key, now)
	for _, again := range t.place(p, ln, now, l.o.Settle+2*l.o.Interval, held) {
		l.later.add(t, again)
	}
	return p, ln
}

// unavailable reports whether the shard that owns a key cannot be asked. The request path
// may call it: it reads a table and a flag.
func (l *Limiter) unavailable(key counter.Key) bool {
	ln, err := l.placed.Load().ring.Owner(key)
	return err != nil || ln.shard.Down()
}

// watch notices when a shard fails and when it is back. It is called after each round trip.
func (l *Limiter) watch(ln *lane) {
	if down := ln.shard.Down(); ln.down.Load() != down && ln.down.Swap(down) != down {
		l.checkAlone()
	}
}

// checkAlone says when this node begins to count alone, because no shard is available, and
// when that ends. It lets all shards be probed that own keys and are down.
func (l *Limiter) checkAlone() {
	l.checking.Lock()
	defer l.checking.Unlock()
	p := l.placed.Load()
	alone := true
	for _, ln := range p.in {
		if ln.shard.Down() {
			ln.rouse() // to probe it
		} else {
			alone = false
		}
	}
	switch was := l.alone.Swap(alone); {
	case alone && !was:
		l.o.Logger.Warn("no shard is available: this node counts alone", "shards", len(p.in))
	case was && !alone:
		l.o.Logger.Info("a shard is available: this node no longer counts alone")
	}
}
