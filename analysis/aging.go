package analysis

import (
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// An agingTable has a value for each key, and forgets keys that were not used for life to twice as long.
// Its size therefore depends on the number of active keys, not on the length of the log.
type agingTable[V any] struct {
	life        int64 // in microseconds
	since, used int64 // when young began, and when it was last used
	young, old  *generation[V]
}

// A generation holds values by the number of their key, in blocks, so that they do not move when it grows.
type generation[V any] struct {
	numbers *client.Table
	blocks  [][]V
}

const keysInBlock = 1 << 8

func newAgingTable[V any](life int64) agingTable[V] {
	return agingTable[V]{life: life, young: newGeneration[V]()}
}

func newGeneration[V any]() *generation[V] { return &generation[V]{numbers: client.NewTable()} }

func (g *generation[V]) at(number uint32) *V {
	return &g.blocks[number/keysInBlock][number%keysInBlock]
}

// age forgets unused keys before requests in a stretch of time, which must not be before that of the last call.
// Results of get are valid until the next call.
func (a *agingTable[V]) age(from, to int64) {
	switch {
	case a.young.numbers.Len() == 0:
		a.since = from
	case from-a.since > a.life:
		if a.old = a.young; from-a.used > a.life {
			a.old = nil
		}
		a.young, a.since = newGeneration[V](), from
	}
	a.used = to
}

// get returns the value of a key, at first the zero value.
func (a *agingTable[V]) get(key *accesslog.Client, hash uint64) *V {
	known := a.young.numbers.Len()
	number := a.young.numbers.At(hash, key)
	if number < known {
		return a.young.at(number)
	}
	if number%keysInBlock == 0 {
		a.young.blocks = append(a.young.blocks, client.Make[V](keysInBlock))
	}
	v := a.young.at(number)
	if a.old != nil {
		if before, ok := a.old.numbers.Find(hash, key); ok {
			*v = *a.old.at(before)
		}
	}
	return v
}

// touch reads the table entry of a key, so that the cache misses of several keys overlap.
func (a *agingTable[V]) touch(hash uint64) uint32 { return a.young.numbers.Touch(hash) }
