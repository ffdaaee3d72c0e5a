package analysis

import (
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// An agingTable has a value for each key, and forgets a key once it has been unused for life to 2·life.
// Its size therefore depends on the number of active keys, not on the length of the log.
type agingTable[V any] struct {
	life        int64 // in microseconds
	since, used int64 // when young began, and when it was last used
	young, old  *client.Values[V]
}

func newAgingTable[V any](life int64) agingTable[V] {
	return agingTable[V]{life: life, young: client.NewValues[V](1)}
}

// age forgets unused keys. It must be called before requests in [from, to], in chronological order.
// Results of get are valid until the next call.
func (a *agingTable[V]) age(from, to int64) {
	switch {
	case a.young.Len() == 0:
		a.since = from
	case from-a.since > a.life:
		if a.old = a.young; from-a.used > a.life {
			a.old = nil
		}
		a.young, a.since = client.NewValues[V](1), from
	}
	a.used = to
}

// get returns the value of a key, which is initially zero.
func (a *agingTable[V]) get(key *accesslog.Client, hash uint64) *V {
	known := a.young.Len()
	v := &a.young.Of(hash, key)[0]
	if a.old != nil && a.young.Len() > known {
		if before, ok := a.old.Find(hash, key); ok {
			*v = a.old.Numbered(before)[0]
		}
	}
	return v
}

// touch reads the table entry of a key, so that the cache misses of several keys overlap.
func (a *agingTable[V]) touch(hash uint64) uint32 { return a.young.Touch(hash) }
