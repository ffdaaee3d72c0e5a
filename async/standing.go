package async

import (
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// Standings returns the counts of key for each limit of r at now: the greater of what this node knows and what the
// key's shard answers. It waits for that answer. With an error, it returns the counts of this node alone.
func (c *Loop) Standings(r *rule.Rule, key counter.Key, now time.Time) (standings []mitigation.Why, err error) {
	generation := c.o.Table.Generation(key)
	known := c.views(nil, key, generation)
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
		for j, known := range []*uint64{&s.Prev, &s.Cur} {
			// The node knows its own requests first, the shard those of other nodes.
			if n, ok := b.Reads[2*i+j].Count(); ok {
				*known = s.Limit.Layout.Max(*known, n)
			}
		}
	}
	return standings, nil
}
