package pop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/shards"
)

// ErrCutOff is returned by Stop if requests did not end in time.
var ErrCutOff = errors.New("pop: requests that did not end in time were aborted")

// Stop stops the node in the order in which a request passes through it: it stops accepting connections, waits for
// requests in flight, sends their counts, and closes the connections to shards and origins. The listeners for
// operators stay open until then. Before all that, Stop lets load balancers notice that the node is not ready, and
// makes clients reconnect elsewhere: until there has been no request for a second, but at most for five seconds or
// half of Options.DrainTimeout, the node still accepts connections, and its answers close them. After that, a client
// may still send a request within conns.RequestWait on a connection that no answer has closed, because it was just
// accepted or an answer was under way. Stop waits for requests until ctx is done or Options.DrainTimeout is over, and
// then closes their connections. Further calls wait for the first one.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	before := n.state
	n.state = stopping
	n.mu.Unlock()
	switch before {
	case stopping:
		<-n.stopped
	case made:
		close(n.stopped)
	case started:
		ctx, cancel := context.WithTimeout(ctx, n.o.DrainTimeout)
		defer cancel()
		n.stopErr = errors.Join(n.stopServing(ctx), n.stopCounting(ctx), n.close())
		close(n.stopped)
	}
	return n.stopErr
}

// stopServing makes clients reconnect elsewhere, and waits for their requests.
func (n *Node) stopServing(ctx context.Context) error {
	if len(n.servers) > 0 && n.o.local == nil { // otherwise clients have nowhere else to go: all nodes stop
		for _, s := range n.servers {
			s.AskToLeave()
		}
		n.proxy.AwaitQuiet(ctx)
	}
	var wg sync.WaitGroup
	var cutOff atomic.Bool
	for _, server := range n.servers {
		wg.Go(func() {
			if server.Shutdown(ctx) != nil {
				cutOff.Store(true)
			}
		})
	}
	wg.Wait()
	if n.proxy.Drain(ctx) != nil || cutOff.Load() {
		return ErrCutOff
	}
	return nil
}

// stopCounting sends the pending counts, and leaves the PoP.
func (n *Node) stopCounting(ctx context.Context) error {
	n.stop()
	n.counted.Wait()
	if n.gossip == nil {
		return nil
	}
	others := len(n.gossip.Peers()) > 0
	err := n.gossip.Stop()
	if n.o.ShardListen != "" && others {
		select { // peers use this node's shard until their rings have changed
		case <-ctx.Done():
		case <-time.After(shards.Linger):
		}
	}
	return err
}

// close closes the listeners for operators and other nodes, and the connections to shards and origins.
func (n *Node) close() error {
	n.end()
	n.running.Wait()
	n.origins.Close()
	return n.shards.Close()
}
