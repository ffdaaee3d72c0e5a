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

// What an unknown instance has counted may be in the number of a known one later.
func TestCountedByAnUnknownInstance(t *testing.T) {
	one, unknown := &counter.Link{Instance: counter.Instance{PID: 1, Start: 1000}}, new(counter.Link)
	two := &counter.Link{Instance: counter.Instance{PID: 2, Start: 2000}}
	for name, answer := range map[string]func(*tally){
		"counted":     func(n *tally) { n.counted(counter.Plain, "s", unknown, 1, 1) },
		"read, later": func(n *tally) { n.keep(counter.Plain); n.readOwner(counter.Plain, "s", unknown, 1) },
		"no answer":   func(n *tally) { n.unknown(counter.Plain, "s", unknown, 1) },
	} {
		var n tally
		l := counter.Plain
		n.add(l, 6)
		n.send(l, l.Budget(1))
		n.counted(l, "s", one, 6, 6)
		n.add(l, 1)
		if n.send(l, l.Budget(1)); name == "read, later" {
			n.unsent(l, 1)
		}
		answer(&n)
		n.readOwner(l, "s", two, 1)
		if got := n.known(l); got != 7 {
			t.Errorf("%s: known are %d of 7 requests", name, got)
		}
	}
}
