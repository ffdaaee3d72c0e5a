package limit

import (
	"context"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
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
	keys := map[count.Shard][]counter.Key{}
	for _, r := range l.o.Table.Records(l.o.Now()) {
		if owner, _ := l.Owner(r.Key); owner != nil && !r.Lifted {
			keys[owner] = append(keys[owner], r.Key)
		}
	}
	var b counter.Batch
	for shard, all := range keys {
		for some := range slices.Chunk(all, inRefresh) {
			if ctx.Err() != nil || shard.Down() {
				break // next time
			}
			b.Reset()
			for _, key := range some {
				b.Reads = append(b.Reads, counter.Read{Item: l.o.Secret.RecordItem(key)})
			}
			if shard.Exchange(&b) != nil {
				break
			}
			now := l.o.Now()
			for i, key := range some {
				if stored, err := mitigation.ParseStored(b.Reads[i].Value, key, now); err == nil {
					l.Learn(stored, "shard", now)
				}
			}
		}
	}
}
