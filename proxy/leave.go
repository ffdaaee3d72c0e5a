package proxy

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// quiet is how long there must be no request before a stopping node closes its listeners and idle
	// connections.
	quiet = time.Second

	// maxQuiet is the maximum time that the node waits for that. Load balancers notice the stop within this time. The node
	// waits for at most half of the time for stopping, because requests in flight need the rest.
	maxQuiet = 5 * time.Second
)

// A lameDuck records whether clients still send requests while the node stops.
type lameDuck struct {
	begun atomic.Bool
	asked atomic.Bool // a request has come since the last check
}

// note records a request.
func (p *Proxy) note() {
	if p.lameDuck.begun.Load() {
		p.lameDuck.asked.Store(true)
	}
}

// AwaitQuiet waits until no client sends requests any more, until maxQuiet or half of the time to ctx's deadline
// is over, or until ctx is done. Clients must have been asked to leave.
func (p *Proxy) AwaitQuiet(ctx context.Context) {
	p.lameDuck.begun.Store(true)
	patience := maxQuiet
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(quiet):
		}
		if !p.lameDuck.asked.Swap(false) {
			return
		}
	}
}

// Drain waits until no abandoned request and no upgraded connection is left. If ctx is done first, it ends the
// remaining requests and returns ctx's error. It must be called once, after the servers have stopped.
func (p *Proxy) Drain(ctx context.Context) error {
	a := &p.abandoned.exchanges
	err := a.Wait(ctx, func(*exchange) {})
	a.Close(func(x *exchange) { _ = x.Close() })
	<-a.Empty()
	if p.upgrades.Wait(ctx, func(*exchange) {}) != nil {
		p.o.Logger.Warn("closing upgraded connections", "connections", p.upgrades.Len())
	}
	return err
}
