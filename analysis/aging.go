package analysis

import (
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// An agingTable has the same number of values for each key, and forgets a key once it has been unused for a time
// between life and 2·life. So its size depends on the number of active keys, not on the length of the log.
type agingTable[V any] struct {
	life        int64 // in microseconds
	each        int   // number of values per key
	since, used int64 // when young began, and when it was last used
	young, old  *client.Values[V]
}

// age forgets unused keys. It must be called before requests in [from, to], in chronological order.
// Results of get are valid until the next call.
func (a *agingTable[V]) age(from, to int64) {
	if a.young == nil {
		a.young = client.NewValues[V](a.each)
	}
	switch {
	case a.young.Len() == 0:
		a.since = from
	case from-a.since > a.life:
		a.old = a.young
		if from-a.used > a.life {
			a.old = nil
		}
		a.young, a.since = client.NewValues[V](a.each), from
	}
	a.used = to
}

// get returns the values of a key, which are initially zero.
func (a *agingTable[V]) get(key *accesslog.Client, hash uint64) []V {
	known := a.young.Len()
	values := a.young.Of(hash, key)
	if a.old != nil && a.young.Len() > known {
		if before, ok := a.old.Find(hash, key); ok {
			copy(values, a.old.Numbered(before))
		}
	}
	return values
}
