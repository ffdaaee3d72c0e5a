package limit

import (
	"fmt"

	"github.com/edgelimit/edge/pop/rule"
)

const (
	// minNodes is how many nodes are reckoned with at least: those that a node has not
	// heard of count in the same sub-windows.
	minNodes = 16

	// lives is how often each node is reckoned with: a node that restarts, or forgets a
	// key, does not know of what it had on its way before.
	lives = 2
)

// sendersOf returns how many senders count in the same numbers, in a PoP of so many nodes.
func sendersOf(nodes int) int { return lives * max(minNodes, nodes) }

// senders returns how many senders count in the same numbers.
func (l *Limiter) senders() int { return sendersOf(l.o.Nodes()) }

// CheckNodes reports which rule of set has more sub-windows than a PoP of so many nodes can
// count in: each node needs room in every one for what it has on its way.
func CheckNodes(set *rule.Set, nodes int) error {
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			if l.SubWindows <= 1 || l.Counted().Layout.Budget(sendersOf(nodes)) > 0 {
				continue
			}
			fewer := l.SubWindows
			for l.SubWindows > 1 && l.Counted().Layout.Budget(sendersOf(nodes)) == 0 {
				l.SubWindows--
			}
			return &rule.Error{File: r.File, Line: r.Line, Column: 1,
				Message: fmt.Sprintf("rule %s: %d sub-windows are too many for a PoP of %d nodes", r.ID, fewer, nodes),
				Hint:    fmt.Sprintf("write sub_windows: %d for the limit of %v", l.SubWindows, l),
			}
		}
	}
	return nil
}
