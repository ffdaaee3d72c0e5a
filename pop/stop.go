package pop

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCutOff is returned by Stop if requests did not end in time.
var ErrCutOff = errors.New("pop: requests that did not end in time were aborted")

// Stop stops the node in the order of a request's way: it stops accepting connections, waits for requests in
// flight, sends their counts, and closes the connections behind. Operators can watch until then. Before all
// that, it gives load balancers time to notice that the node is not ready, and clients a reason to reconnect
// elsewhere: until there has been no request for a second, but at most for five seconds or half of
// Options.DrainTimeout, it still accepts connections, and its answers close them. Connections that were
// accepted just before the listeners close are served if their first request arrives within http1.LastMoment.
// Stop waits for requests until ctx is done or Options.DrainTimeout is over, and then closes their connections.
// Further calls wait for the first one.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	before := n.state
	n.state = stopping
	n.mu.Unlock()
	switch before {
	case stopping:
		<-n.stopped
	case made:
		n.stop()
		n.end()
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
	if len(n.servers) > 0 && !n.o.together {
		for _, s := range n.servers {
			if s, ok := s.(interface{ Leave() }); ok {
				s.Leave()
			}
		}
		n.lameDuck.wait(ctx)
	}
	var wg sync.WaitGroup
	var cutOff atomic.Bool
	for _, server := range n.servers {
		wg.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				cutOff.Store(true)
				_ = server.Close()
			}
		})
	}
	wg.Wait()
	if err := n.proxy.Drain(ctx); err != nil {
		cutOff.Store(true)
	}
	if cut := n.upgrading.wait(ctx); cut > 0 {
		n.o.Logger.Warn("closing upgraded connections", "connections", cut)
	}
	if cutOff.Load() {
		return ErrCutOff
	}
	return nil
}

// stopCounting sends the pending counts, and leaves the PoP.
func (n *Node) stopCounting(ctx context.Context) error {
	n.stop()
	<-n.counted
	if n.gossip == nil {
		return nil
	}
	others := len(n.gossip.Members()) > 0
	err := n.gossip.Stop()
	if n.discover != nil && others {
		select { // peers use this node's shard until their rings have changed
		case <-ctx.Done():
		case <-time.After(shardLinger):
		}
	}
	return err
}

// close closes the listeners for operators and other nodes, and the connections to shards and origins.
func (n *Node) close() error {
	var errs []error
	for _, s := range n.operators {
		_ = s.Close()
	}
	n.end()
	n.running.Wait()
	for _, s := range n.shards {
		errs = append(errs, s.Close())
	}
	if n.discover != nil {
		for _, s := range n.discover.known {
			errs = append(errs, s.Close())
		}
	}
	n.origins.Close()
	return errors.Join(errs...)
}

const (
	// lameDuckQuiet is how long there must be no request before a stopping node closes its listeners and idle
	// connections.
	lameDuckQuiet = time.Second

	// lameDuckMax is the maximum time that it waits for that: load balancers notice within it. It waits for at
	// most half of the time for stopping, because requests in flight need the rest.
	lameDuckMax = 5 * time.Second
)

// shardLinger is how long the shard of a node that has left still answers its peers: until all of them count
// elsewhere and have read the counts of clients that return.
const shardLinger = 4 * discoverPause

// A lameDuck makes the clients of a stopping node reconnect elsewhere. It still serves requests, and asks
// clients to close the connection: if the node closed it, the next request could already be on its way.
type lameDuck struct {
	begun atomic.Bool
	asked atomic.Bool // a request has come since the last check
}

// follow returns a handler that passes requests to next.
func (f *lameDuck) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.noteRequest() {
			w = &lastWriter{w}
		}
		next.ServeHTTP(w, r)
	})
}

// noteRequest records a request, and reports whether the node is stopping.
func (f *lameDuck) noteRequest() bool {
	if !f.begun.Load() {
		return false
	}
	f.asked.Store(true)
	return true
}

// wait waits until no client sends requests any more, until lameDuckMax or half of the time to ctx's deadline
// is over, or until ctx is done.
func (f *lameDuck) wait(ctx context.Context) {
	f.begun.Store(true)
	patience := lameDuckMax
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(lameDuckMax, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lameDuckQuiet):
		}
		if !f.asked.Swap(false) {
			return
		}
	}
}

// A lastWriter writes the last answer of a connection. In HTTP/1 its header closes the connection, and in
// HTTP/2 net/http turns it into GOAWAY.
type lastWriter struct{ http.ResponseWriter }

// WriteHeader writes the header. Interim answers and upgrades do not end a connection.
func (w *lastWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives net/http access to the writer's other methods.
func (w *lastWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
