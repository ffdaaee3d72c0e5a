package count

import (
	"fmt"
	"math"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

const (
	// MinNodes is how many nodes are reckoned with at least: those that a node has not
	// heard of count in the same sub-windows.
	MinNodes = 16

	// lives is how often each node is reckoned with: a node that restarts, or forgets a
	// key, does not know of what it had on its way before.
	lives = 2

	maxErrors = 20 // of CheckNodes
)

// sendersOf returns how many senders count in the same numbers, in a PoP of so many nodes.
func sendersOf(nodes int) int { return lives * max(MinNodes, nodes) }

// senders returns how many senders count in the same numbers.
func (c *Loop) senders() int { return sendersOf(c.o.Nodes()) }

// MostNodes returns how many nodes of a PoP can count in the same numbers of a layout: each
// needs room in every sub-window for what it has on its way.
func MostNodes(l counter.Layout) int {
	return int(min(uint64(1)<<(l.Bits-2)/lives, math.MaxInt32))
}

// CheckNodes reports which limits of set have more sub-windows than a PoP of so many nodes
// can count in: see [MostNodes].
func CheckNodes(set *rule.Set, nodes int) error {
	var errs rule.Errors
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			most := MostNodes(l.Counted().Layout)
			if nodes <= most {
				continue
			}
			if len(errs) == maxErrors {
				return append(errs, &rule.Error{File: r.File, Message: "too many errors; the rest is not shown"})
			}
			fewer := l
			for MostNodes(fewer.Counted().Layout) < nodes {
				fewer.SubWindows--
			}
			errs = append(errs, &rule.Error{File: r.File, Line: r.Line, Column: 1,
				Message: fmt.Sprintf("rule %s: the limit of %v has %d sub-windows, which are for %d nodes at most, and the PoP may have %d",
					r.ID, l, l.SubWindows, most, nodes),
				Hint: fmt.Sprintf("write sub_windows: %d", fewer.SubWindows),
			})
		}
	}
	if errs == nil {
		return nil
	}
	return errs
}

// SubWindows returns how many limits have sub-windows, and how many of these have more than
// the PoP's nodes can count in, so that each node counts them by itself.
func (c *Loop) SubWindows() (limits, alone int) {
	rules, nodes := c.rules.Load(), c.o.Nodes()
	for fields, n := range rules.packed {
		if n == 0 {
			continue
		}
		limits += n
		if layout, _ := counter.LayoutOf(fields); nodes > MostNodes(layout) {
			alone += n
		}
	}
	return limits, alone
}

// packedIn returns how many limits of set have sub-windows, by their number.
func packedIn(set *rule.Set) (n [counter.MaxFields + 1]int) {
	for _, r := range set.Rules() {
		for i := range r.Limits {
			if fields := r.Limits[i].SubWindows; fields > 1 {
				n[fields]++
			}
		}
	}
	return n
}
