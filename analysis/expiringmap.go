package analysis

import (
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// An expiringMap forgets values that have not been used for its life. Its size therefore depends on the number
// of active keys, not on the length of the log.
type expiringMap[V any] struct {
	life       int64 // in microseconds
	since      int64 // when young was last empty
	young, old mapGeneration[V]
}

// A mapGeneration holds values by number, in blocks, so that they do not move when it grows.
type mapGeneration[V any] struct {
	numbers *client.Table
	blocks  [][]entry[V]
}

type entry[V any] struct {
	value V
	used  int64
}

const entriesInBlock = 1 << 5

func (a *mapGeneration[V]) at(number uint32) *entry[V] {
	return &a.blocks[number/entriesInBlock][number%entriesInBlock]
}

// touch reads the table entry of a key: see client.Table.Touch.
func (a *expiringMap[V]) touch(hash uint64) (read uint32) {
	if a.young.numbers != nil {
		read = a.young.numbers.Touch(hash)
	}
	return read
}

// peek returns the value of a key if it is in young, otherwise nil.
func (a *expiringMap[V]) peek(key *accesslog.Client, hash uint64) (v V) {
	if a.young.numbers == nil {
		return v
	}
	if number, known := a.young.numbers.Find(hash, key); known {
		v = a.young.at(number).value
	}
	return v
}

// get returns the value of a key, or a new one. now must not decrease.
func (a *expiringMap[V]) get(key *accesslog.Client, hash uint64, now int64) (v *V, known bool) {
	if a.young.numbers == nil || now-a.since > a.life {
		if a.old = a.young; now-a.since > 2*a.life {
			a.old = mapGeneration[V]{}
		}
		a.young, a.since = mapGeneration[V]{numbers: client.NewTable()}, now
	}
	before := a.young.numbers.Len()
	number := a.young.numbers.At(hash, key)
	if int(number) == entriesInBlock*len(a.young.blocks) {
		a.young.blocks = append(a.young.blocks, client.Make[entry[V]](entriesInBlock))
	}
	e := a.young.at(number)
	if known = number < before; !known && a.old.numbers != nil {
		if number, known = a.old.numbers.Find(hash, key); known {
			*e = *a.old.at(number)
		}
	}
	if known && now-e.used > a.life {
		*e, known = entry[V]{}, false
	}
	e.used = now
	return &e.value, known
}
