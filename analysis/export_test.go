package analysis

import (
	"math"
	"net/netip"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// Fill counts as many requests of a client in the first window of each period as s can count.
func (s *Sweep) Fill(addr netip.Addr) {
	key := accesslog.Client(addr.As16())
	for _, grids := range s.grids {
		windows := grids[0].windows.Of(client.Hash(&key), &key)
		for i := range windows {
			windows[i].Cur = math.MaxUint32
		}
	}
}

// WithWaiting returns o with another maximum number of pending counts of a node.
func (o PoPOptions) WithWaiting(n int) PoPOptions {
	o.waiting = n
	return o
}

// WithSeed returns o with a seed for choosing the nodes of requests.
func (o PoPOptions) WithSeed(seed uint64) PoPOptions { o.seed = seed; return o }
