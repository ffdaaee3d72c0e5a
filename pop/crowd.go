package pop

import (
	"fmt"
	"sync"

	"github.com/edgelimit/edge/pop/count"
)

// A crowd is what a node has said about more nodes than its settings and rules are for.
type crowd struct {
	mu     sync.Mutex // guards what follows
	untold bool       // that there are more than MaxNodes
	alone  int        // of so many limits, that it counts them by itself
}

// noteNodes says what more nodes, or other rules, mean for limits with sub-windows. It is
// called when the node has heard of more nodes than ever, and when it has other rules.
func (n *Node) noteNodes() {
	c := &n.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := n.nodes()
	limits, alone := n.limiter.SubWindows()
	switch {
	case alone > c.alone:
		n.o.Logger.Error("there are more nodes than limits have sub-windows for, so that each node counts these by itself; give them fewer",
			"nodes", nodes, "limits", alone, "err", first(count.CheckNodes(n.Rules(), nodes)))
	case alone == 0 && c.alone > 0:
		n.o.Logger.Info("no limit has more sub-windows than the nodes can count in any more", "nodes", nodes)
	}
	c.alone = alone
	if limits > 0 && nodes > n.o.MaxNodes && !c.untold {
		c.untold = true
		n.o.Logger.Warn("there are more nodes than max-nodes says; one that starts does not know of so many, so that sub-windows may overflow: set it on all nodes",
			"nodes", nodes, "max_nodes", n.o.MaxNodes)
	}
}

// first returns the first error that err consists of, if there is one.
func first(err error) error {
	if err == nil {
		return nil
	}
	return singleErrors(err)[0]
}

// crowded returns what operators should know about the number of nodes.
func (n *Node) crowded() []string {
	nodes := n.nodes()
	switch limits, alone := n.limiter.SubWindows(); {
	case alone > 0:
		return []string{fmt.Sprintf("limits counted by each node alone, since %d nodes are too many for their sub-windows: %d", nodes, alone)}
	case limits > 0 && nodes > n.o.MaxNodes:
		return []string{fmt.Sprintf("there are %d nodes, and max-nodes is %d", nodes, n.o.MaxNodes)}
	}
	return nil
}
