package pop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/edgelimit/edge/pop"
)

// A network delivers the messages of a scenario's nodes immediately. It can be partitioned.
type network struct {
	mu    sync.Mutex // guards the fields below
	nodes []*pop.Node
	part  map[string]int           // of each node; nodes in different parts do not reach each other
	sent  int                      // messages
	ahead map[string]time.Duration // how far each node's clock is ahead; constant
	fail  func(error)
}

func newNetwork(t *testing.T) *network {
	return &network{part: map[string]int{}, ahead: map[string]time.Duration{}, fail: func(err error) { t.Error(err) }}
}

// A way connects a node to the others.
type way struct {
	*network
	from string
}

// replace replaces the ith node.
func (n *network) replace(i int, node *pop.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[i] = node
}

// reachable returns the nodes that from can reach, without itself.
func (n *network) reachable(from string) (nodes []*pop.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.nodes {
		if other.Name() != from && n.part[other.Name()] == n.part[from] {
			nodes = append(nodes, other)
		}
	}
	return nodes
}

func (w way) Send(message []byte) {
	for _, other := range w.reachable(w.from) {
		w.deliver(other, message)
	}
}

func (w way) SendTo(name string, messages ...[]byte) (ok bool) {
	for _, other := range w.reachable(w.from) {
		if other.Name() == name {
			ok = true
			for _, message := range messages {
				w.deliver(other, message)
			}
		}
	}
	return ok
}

// ClockAhead returns the clock offset as gossip measures it.
func (w way) ClockAhead() (ahead time.Duration) {
	for _, other := range w.reachable(w.from) {
		ahead = max(ahead, w.ahead[w.from]-w.ahead[other.Name()])
	}
	return ahead
}

func (w way) deliver(to *pop.Node, message []byte) {
	w.mu.Lock()
	w.sent++
	w.mu.Unlock()
	if err := to.Receive(w.from, message, 0); err != nil {
		w.fail(err)
	}
}

// tell sends each node's status to the others four times a second, until ctx is done.
func (n *network) tell(ctx context.Context) {
	time.Sleep(333 * time.Microsecond)
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		n.mu.Lock()
		nodes := slices.Clone(n.nodes)
		n.mu.Unlock()
		for _, from := range nodes {
			status := from.Status()
			for _, to := range n.reachable(from.Name()) {
				to.ReceiveStatus(from.Name(), status, false)
			}
		}
	}
}

// partition cuts nodes off from the others: partition n1 n2.
func (s *scenario) partition(d *datadriven.TestData) (string, error) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	for _, a := range d.CmdArgs {
		s.network.part[a.Key] = 1
	}
	return "", nil
}

// heal joins all parts.
func (s *scenario) heal(*datadriven.TestData) (string, error) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	clear(s.network.part)
	return "", nil
}

// messages prints the number of messages since the last call.
func (s *scenario) messages(*datadriven.TestData) (string, error) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	defer func() { s.network.sent = 0 }()
	return fmt.Sprintf("%d messages\n", s.network.sent), nil
}
