// Package client numbers the clients of a log, or other keys, and holds values for them.
package client

import (
	"hash/maphash"
	"unsafe"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// A Table numbers clients from 0 in the order in which they first appear. It uses linear
// probing instead of a map, so that several places can be fetched from memory at the same
// time: this halves the time for a log with many clients.
type Table struct {
	places  []place // a power of two of them, at most three quarters taken
	n       uint32
	touched uint32 // meaningless: keeps the compiler from dropping the reads of Touch
}

// A place is a client and its number plus 1; 0 if the place is free.
type place struct {
	client accesslog.Client
	number uint32
}

// Len returns the number of clients.
func (c *Table) Len() uint32 { return c.n }

// seed is shared by all tables.
var seed = maphash.MakeSeed()

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{places: Make[place](64)}
}

// Make is like make, for memory that is read before it is written. Linux would map each of its pages twice, and
// interrupt the other cores the second time, so Make writes to each page first.
func Make[T any](n int) []T {
	const page = 4096
	var zero T
	all := make([]T, n)
	for i := 0; i < n; i += max(1, page/int(unsafe.Sizeof(zero))) {
		all[i] = zero
	}
	return all
}

// Touch reads the place where a client is likely to be, so that the cache misses of several clients
// overlap.
func (c *Table) Touch(hash uint64) { c.touched += c.places[hash&uint64(len(c.places)-1)].number }

// Hash returns the hash of a client, the same for all tables.
func Hash(client *accesslog.Client) uint64 { return maphash.Bytes(seed, client[:]) }

// At returns the number of a client. A new client gets the next number, c.Len().
func (c *Table) At(hash uint64, client *accesslog.Client) uint32 {
	p := c.place(hash, client)
	if p.number > 0 {
		return p.number - 1
	}
	c.n++
	*p = place{*client, c.n}
	if 4*uint64(c.n) > 3*uint64(len(c.places)) {
		c.grow()
	}
	return c.n - 1
}

// Find returns the number of a client, and whether it has one.
func (c *Table) Find(hash uint64, client *accesslog.Client) (number uint32, known bool) {
	p := c.place(hash, client)
	return p.number - 1, p.number > 0
}

// place returns the place of a client, or the free one that it would take.
func (c *Table) place(hash uint64, client *accesslog.Client) *place {
	mask := uint64(len(c.places) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		if p := &c.places[at]; p.number == 0 || p.client == *client {
			return p
		}
	}
}

func (c *Table) grow() {
	before := c.places
	c.places = Make[place](2 * len(before))
	for i := range before {
		if before[i].number == 0 {
			continue
		}
		*c.place(Hash(&before[i].client), &before[i].client) = before[i]
	}
}

// Join adds the clients of o.
func (c *Table) Join(o *Table) {
	for len(c.places) < 2*int(c.n+o.n) {
		c.grow() // clients come in the order of their hashes, and would cluster in fewer places
	}
	for i := range o.places {
		if p := &o.places[i]; p.number > 0 {
			c.At(Hash(&p.client), &p.client)
		}
	}
}

// Values is a Table with the same number of values for each client. The values do not move when the table grows.
type Values[V any] struct {
	Table
	each   int // number of values per client
	blocks [][]V
}

const clientsInBlock = 1 << 8

// NewValues returns empty Values with this number of values per client.
func NewValues[V any](perClient int) *Values[V] {
	return &Values[V]{Table: *NewTable(), each: perClient}
}

// Of returns the values of a client, which are initially zero.
func (v *Values[V]) Of(hash uint64, client *accesslog.Client) []V {
	number := v.Table.At(hash, client)
	if int(number) == clientsInBlock*len(v.blocks) {
		v.blocks = append(v.blocks, Make[V](clientsInBlock*v.each))
	}
	return v.Numbered(number)
}

// Numbered returns the values of the client with this number.
func (v *Values[V]) Numbered(number uint32) []V {
	return v.blocks[number/clientsInBlock][int(number%clientsInBlock)*v.each:][:v.each]
}
