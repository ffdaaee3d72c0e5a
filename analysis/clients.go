package analysis

import (
	"hash/maphash"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// clients numbers clients from 0 in the order in which they first appear. Instead of a
// map it is a table with linear probing, of which several places can be fetched from memory
// at the same time: of a log with many clients that takes half of the time.
type clients struct {
	seed   maphash.Seed
	places []place // as many as a power of two, at most three quarters of them taken
	n      uint32
	next   [fetchedAtOnce]uint64 // hashes
}

// A place is a client and its number plus 1; 0 if the place is free.
type place struct {
	client accesslog.Client
	number uint32
}

func newClients() *clients {
	return &clients{seed: maphash.MakeSeed(), places: make([]place, 1024)}
}

// fetch prepares number for up to fetchedAtOnce arrivals.
func (c *clients) fetch(arrivals []accesslog.Arrival) (fetched uint32) {
	mask := uint64(len(c.places) - 1)
	for i := range arrivals {
		c.next[i] = maphash.Bytes(c.seed, arrivals[i].Client[:])
		fetched += c.places[c.next[i]&mask].number
	}
	return fetched
}

// number returns the number of the client of the ith arrival that was fetched.
func (c *clients) number(i int, client *accesslog.Client) uint32 {
	mask := uint64(len(c.places) - 1)
	for at := c.next[i] & mask; ; at = (at + 1) & mask {
		switch p := &c.places[at]; {
		case p.number == 0:
			c.n++
			*p = place{*client, c.n}
			if 4*uint64(c.n) > 3*(mask+1) {
				c.grow()
			}
			return c.n - 1
		case p.client == *client:
			return p.number - 1
		}
	}
}

func (c *clients) grow() {
	before := c.places
	c.places = make([]place, 2*len(before))
	mask := uint64(len(c.places) - 1)
	for i := range before {
		if before[i].number == 0 {
			continue
		}
		at := maphash.Bytes(c.seed, before[i].client[:]) & mask
		for c.places[at].number != 0 {
			at = (at + 1) & mask
		}
		c.places[at] = before[i]
	}
}
