package async

import (
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// Standings returns the counts of key for each limit of r at now, from what this node knows and the shard that owns the
// key answers. It waits for that answer. With an error, it returns the standings that the node alone knows.
func (c *Loop) Standings(r *rule.Rule, key counter.Key, now time.Time) (standings []mitigation.Why, err error) {
	generation := c.o.Table.Generation(key)
	known := c.shown(nil, key, generation, now)
	counted := c.o.Secret.After(key, generation)
	var b counter.Batch
	for i := range r.Limits {
		limit := r.Limits[i].Counted()
		index, elapsed := counter.Window(now, limit.Period)
		s := mitigation.Why{Limit: limit, Elapsed: elapsed}
		for j := range known {
			if v := &known[j]; v.limit.Period == limit.Period && v.limit.Layout == limit.Layout {
				v.Roll(index)
				s.Prev, s.Cur = v.Prev, v.Cur
				if r.Overrides != "" && r.Base() == r { // the caller may not know which limits the key has
					s.Limit.Threshold = v.limit.Threshold
				}
			}
		}
		standings = append(standings, s)
		b.Reads = append(b.Reads, counter.Read{Item: c.o.Secret.CounterItem(counted, limit, index-1)},
			counter.Read{Item: c.o.Secret.CounterItem(counted, limit, index)})
	}
	ln := c.placed.Load().lane(key)
	switch {
	case ln == nil:
		return standings, errors.New("no shard is available: these are the counts of this node alone")
	case !ln.shard.Available():
		return standings, fmt.Errorf("shard %s is not available: these are the counts of this node alone", ln.addr())
	}
	if err := ln.shard.Exchange(&b); err != nil {
		return standings, fmt.Errorf("shard %s does not answer, these are the counts of this node alone: %w", ln.addr(), err)
	}
	for i := range standings {
		s := &standings[i]
		s.Prev = greater(s.Limit.Layout, s.Prev, &b.Reads[2*i])
		s.Cur = greater(s.Limit.Layout, s.Cur, &b.Reads[2*i+1])
	}
	return standings, nil
}

// greater returns the greater of a known count and one that was read. The node knows its own requests first, the shard
// those of other nodes.
func greater(layout counter.Layout, known uint64, read *counter.Read) uint64 {
	if read.Outcome != counter.Done {
		return known // the shard has no count, or did not send it
	}
	if n, ok := counter.ParseValue(read.Value); ok && layout.Sum(n) > layout.Sum(known) {
		return n
	}
	return known
}
