package pop

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/edgelimit/edge/pop/rulefile"
)

// A crowd records what a node has logged about having more nodes than its settings and rules allow for.
type crowd struct {
	mu     sync.Mutex // guards the fields below
	warned bool       // about more nodes than MaxNodes
	alone  int        // number of limits that were logged as counted by each node alone
}

// noteNodes logs what more nodes, or other rules, mean for limits with sub-windows. It is called when the
// number of known nodes reaches a new maximum, and when the rules change.
func (n *Node) noteNodes() {
	c := &n.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := n.nodes()
	limits, alone := n.limiter.SubWindows()
	switch {
	case alone > c.alone:
		n.o.Logger.Error("some limits have too many sub-windows for the number of nodes, so each node counts them alone; give them fewer",
			"nodes", nodes, "limits", alone, "err", cmp.Or(SingleErrors(rulefile.CheckNodes(n.Rules(), nodes))...))
	case alone == 0 && c.alone > 0:
		n.o.Logger.Info("all limits fit the number of nodes again", "nodes", nodes)
	}
	c.alone = alone
	if limits > 0 && nodes > n.o.MaxNodes && !c.warned {
		c.warned = true
		n.o.Logger.Warn("the PoP has more nodes than max-nodes, so sub-windows may overflow when a node starts; set max-nodes on all nodes to at least this many",
			"nodes", nodes, "max_nodes", n.o.MaxNodes)
	}
}

// crowded returns what operators should know about the number of nodes.
func (n *Node) crowded() []string {
	nodes := n.nodes()
	switch limits, alone := n.limiter.SubWindows(); {
	case alone > 0:
		return []string{fmt.Sprintf("limits that each node counts alone, because their sub-windows do not fit %d nodes: %d", nodes, alone)}
	case limits > 0 && nodes > n.o.MaxNodes:
		return []string{fmt.Sprintf("the PoP has %d nodes but max-nodes is %d: set max-nodes to at least %[1]d on every node", nodes, n.o.MaxNodes)}
	}
	return nil
}
