package proxy

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// quiet is the pause between requests after which a stopping node closes its listeners and idle connections.
	quiet = time.Second

	// maxQuiet is the maximum time that the node waits for such a pause. Load balancers notice the stop within this time.
	// The node waits for at most half of the time it has for stopping, because requests in flight need the rest.
	maxQuiet = 5 * time.Second
)

// A lameDuck records whether clients still send requests while the node stops.
type lameDuck struct {
	begun atomic.Bool // the node is stopping: note must set asked
	asked atomic.Bool // a request has arrived since the last check
}

// note records that a request has arrived.
func (p *Proxy) note() {
	if p.lameDuck.begun.Load() {
		p.lameDuck.asked.Store(true)
	}
}

// AwaitQuiet waits until clients send no more requests, but at most maxQuiet, at most half of the time to ctx's
// deadline, and not after ctx is done. AskToLeave must be called first.
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
// remaining abandoned requests, and returns ctx's error. It must be called once, after the servers have stopped.
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
