package count

import (
	"testing"

	"github.com/edgelimit/edge/counter"
)

// An increment without an answer counts at the instance that it was sent to: what that one has
// later includes it.
func TestUnansweredByAnotherInstance(t *testing.T) {
	instance := func(pid int) *counter.Link {
		return &counter.Link{Instance: counter.Instance{PID: pid, Start: int64(1000 * pid)}}
	}
	var n tally
	l := counter.Plain
	send := func(delta uint64) {
		n.add(l, delta)
		n.send(l, l.Budget(1))
	}
	send(5)
	n.counted(l, "s", instance(1), 5, 5)
	send(3) // memcached was restarted, counts these, and its answer is lost
	n.unknown(l, "s", instance(2), 3)
	if got := n.known(l); got != 8 {
		t.Errorf("known are %d of 8 requests", got)
	}
	send(1)
	n.counted(l, "s", instance(2), 4, 1)
	if got := n.known(l); got != 9 {
		t.Errorf("known are %d of 9 requests", got)
	}
}
