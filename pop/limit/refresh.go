package limit

import (
	"context"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
)

// inRefresh is how many records are read in one round trip.
const inRefresh = 100

// refreshAgain reads the records of active mitigations from the shards, every Options.Refresh,
// until ctx is done: requests of a mitigated key are not counted, so that nothing else would
// tell that another node has lifted or prolonged it.
func (l *Limiter) refreshAgain(ctx context.Context) {
	tick := time.NewTicker(l.o.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.refresh(ctx)
		}
	}
}

// refresh reads the records of active mitigations once.
func (l *Limiter) refresh(ctx context.Context) {
	keys := map[*lane][]counter.Key{}
	ring := l.placed.Load().ring
	for _, r := range l.o.Table.Records(l.o.Now()) {
		if owner, err := ring.Owner(r.Key); err == nil && !r.Lifted {
			keys[owner] = append(keys[owner], r.Key)
		}
	}
	for ln, all := range keys {
		for some := range slices.Chunk(all, inRefresh) {
			if ctx.Err() != nil || !ln.shard.Available() {
				break // next time
			}
			names := make([]string, len(some))
			for i, key := range some {
				names[i] = l.o.Secret.RecordKey(key)
			}
			values, err := ln.shard.Numbers(names...)
			l.watch(ln)
			if err != nil {
				break
			}
			for i, key := range some {
				l.learnStored(values[names[i]], key)
			}
		}
	}
}
