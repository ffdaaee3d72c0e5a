package pop

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/rule"
)

const (
	// clockInterval is how often a node compares its clock with the others'.
	clockInterval = time.Second

	// clockDivisor is the divisor of the shortest period that gives the maximum difference between
	// clocks: requests are counted in windows by each node's clock.
	clockDivisor = 20

	// clockFor is the number of consecutive checks that must find a clock wrong: one may be imprecise.
	clockFor = 5
)

// noteClock records whether the clock differs too much for the rules. offset is how far it is ahead of the peers'.
// It must not be called concurrently.
func (n *Node) noteClock(offset time.Duration) {
	shortest := rule.MaxPeriod
	for _, r := range n.Rules().Rules() {
		for _, l := range r.Limits {
			shortest = min(shortest, l.Period)
		}
	}
	switch {
	case offset.Abs() <= shortest/clockDivisor:
		n.clockWrong = 0
		n.notices.note(problemClock, "")
	case n.clockWrong < clockFor-1:
		n.clockWrong++
	default:
		n.notices.note(problemClock, fmt.Sprintf("this node's clock differs by %v from those of its peers, too much for limits with a period of %v: synchronize it", offset.Abs(), shortest))
	}
}
