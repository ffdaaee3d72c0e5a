// Package client numbers the clients of a log, or whatever else is counted apart.
package client

import (
	"hash/maphash"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// A Table numbers clients from 0 in the order in which they first appear. Instead of a
// map it has linear probing, of which several places can be fetched from memory
// At the same time: of a log with many clients that takes half of the time.
type Table struct {
	places []place // as many as a power of two, at most three quarters of them taken
	n      uint32
	next   [AtOnce]uint64 // hashes
}

// A place is a client and its number plus 1; 0 if the place is free.
type place struct {
	client accesslog.Client
	number uint32
}

// AtOnce is how many clients a Table fetches at the same time.
const AtOnce = 16

// Len returns how many clients there are.
func (c *Table) Len() uint32 { return c.n }

// seed is that of all tables.
var seed = maphash.MakeSeed()

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{places: make([]place, 1024)}
}

// Touch reads where a client may be, for no other reason than that memory then brings several at
// the same time.
func (c *Table) Touch(hash uint64) uint32 { return c.places[hash&uint64(len(c.places)-1)].number }

// Fetch prepares Number for up to AtOnce arrivals.
func (c *Table) Fetch(arrivals []accesslog.Arrival) (fetched uint32) {
	for i := range arrivals {
		c.next[i] = Hash(&arrivals[i].Client)
		fetched += c.Touch(c.next[i])
	}
	return fetched
}

// Number returns the number of the client of the ith arrival that was fetched.
func (c *Table) Number(i int, client *accesslog.Client) uint32 { return c.At(c.next[i], client) }

// Hash returns the hash of a client, the same for all tables.
func Hash(client *accesslog.Client) uint64 { return maphash.Bytes(seed, client[:]) }

// At returns the number of a client, which is c.Len before if the client is new.
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
	c.places = make([]place, 2*len(before))
	for i := range before {
		if before[i].number == 0 {
			continue
		}
		*c.place(Hash(&before[i].client), &before[i].client) = before[i]
	}
}

// Join numbers the clients of o as well.
func (c *Table) Join(o *Table) {
	for len(c.places) < 2*int(c.n+o.n) {
		c.grow() // o has them in the order of their hashes, which would pile up in fewer places
	}
	for i := range o.places {
		if p := &o.places[i]; p.number > 0 {
			c.At(Hash(&p.client), &p.client)
		}
	}
}
