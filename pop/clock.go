package pop

import (
	"context"
	"log/slog"
	"time"

	"github.com/edgelimit/edge/pop/rule"
)

const (
	// clockInterval is how often a node compares its clock with the others'.
	clockInterval = time.Second

	// clockShare is the part of the shortest period by which clocks may differ: requests
	// are counted in windows by each node's clock.
	clockShare = 20

	// clockFor is the number of consecutive checks that must find a clock wrong before that is logged.
	clockFor = 5
)

// A clockWatch logs when a node's clock differs too much from the others'.
type clockWatch struct {
	offset func() time.Duration // how far this clock is ahead of the others
	rules  func() *rule.Set
	logger *slog.Logger

	wrong int // consecutive checks
}

// every calls do at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

// look checks the clock.
func (c *clockWatch) look() {
	shortest, offset := shortestPeriod(c.rules()), c.offset()
	if offset.Abs() <= shortest/clockShare {
		if c.wrong >= clockFor {
			c.logger.Info("the clock is right again", "ahead", offset)
		}
		c.wrong = 0
		return
	}
	if c.wrong++; c.wrong == clockFor {
		c.logger.Warn("this node's clock differs from those of its peers, so windows differ; synchronize it",
			"ahead", offset, "shortest_period", shortest)
	}
}

// shortestPeriod returns the shortest period of a set, or a week, the longest valid period, if it has no
// limits.
func shortestPeriod(set *rule.Set) time.Duration {
	shortest := rule.MaxPeriod
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			shortest = min(shortest, l.Period)
		}
	}
	return shortest
}
