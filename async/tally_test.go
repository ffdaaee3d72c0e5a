package async

import (
	"testing"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
)

// An increment without an answer counts at the instance that it was sent to, whose later values
// include it.
func TestUnansweredByAnotherInstance(t *testing.T) {
	instance := func(pid int) *memcached.Link {
		return &memcached.Link{Instance: memcached.Instance{PID: pid, Start: int64(1000 * pid)}}
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
		t.Errorf("%d of 8 requests are known", got)
	}
	send(1)
	n.counted(l, "s", instance(2), 4, 1)
	if got := n.known(l); got != 9 {
		t.Errorf("%d of 9 requests are known", got)
	}
}

// Requests counted by an unknown instance may later be included in the value of a known one.
func TestCountedByAnUnknownInstance(t *testing.T) {
	one, unknown := &memcached.Link{Instance: memcached.Instance{PID: 1, Start: 1000}}, new(memcached.Link)
	two := &memcached.Link{Instance: memcached.Instance{PID: 2, Start: 2000}}
	for name, answer := range map[string]func(*tally){
		"counted":     func(n *tally) { n.counted(counter.Plain, "s", unknown, 1, 1) },
		"read, later": func(n *tally) { n.keep(counter.Plain); n.read(counter.Plain, "s", "s", unknown, 1) },
		"no answer":   func(n *tally) { n.unknown(counter.Plain, "s", unknown, 1) },
	} {
		var n tally
		l := counter.Plain
		n.add(l, 6)
		n.send(l, l.Budget(1))
		n.counted(l, "s", one, 6, 6)
		n.add(l, 1)
		if n.send(l, l.Budget(1)); name == "read, later" {
			n.unsent(l, 1, counter.NotSent)
		}
		answer(&n)
		n.read(l, "s", "s", two, 1)
		if got := n.known(l); got != 7 {
			t.Errorf("%s: %d of 7 requests are known", name, got)
		}
	}
}

// A value that is read while an increment is in flight may include it: the increment counts once.
func TestReadWhileAnIncrementIsInFlight(t *testing.T) {
	one := &memcached.Link{Instance: memcached.Instance{PID: 1, Start: 1000}}
	for name, read := range map[string]func(*tally){
		"at another address": func(n *tally) { n.read(counter.Plain, "s", "same server", one, 3) },
		"at the owner":       func(n *tally) { n.read(counter.Plain, "s", "s", one, 3) },
	} {
		var n tally
		l := counter.Plain
		for value := uint64(1); value <= 4; value++ {
			n.add(l, 1)
			n.send(l, l.Budget(1))
			if value == 3 {
				read(&n)
			}
			if got := n.known(l); got != value {
				t.Errorf("%s: %d of %d requests are known", name, got, value)
			}
			n.counted(l, "s", one, value, 1)
		}
		if got := n.known(l); got != 4 {
			t.Errorf("%s: at the end, %d of 4 requests are known", name, got)
		}
	}
}

// The same at a former address of the instance that gets the increment, which is not known yet. A value of another
// instance counts as well.
func TestReadAtAFormerAddressDuringAnIncrement(t *testing.T) {
	link := func(pid int) *memcached.Link {
		return &memcached.Link{Instance: memcached.Instance{PID: pid, Start: 1000}}
	}
	l := counter.Plain
	for _, test := range []struct {
		name        string
		known       bool // the former address has answered before
		owner       int
		value, want uint64
	}{
		{"the same instance", true, 1, 41, 41},
		{"the same instance, unknown until then", false, 1, 41, 41},
		{"another instance", true, 2, 1, 42},
	} {
		var n tally
		if test.known {
			n.add(l, 40)
			n.send(l, l.Budget(1))
			n.counted(l, "127.0.0.1:11211", link(1), 40, 40)
		}
		n.move(l, "127.0.0.1:11211", "localhost:11211")
		n.add(l, 1)
		n.send(l, l.Budget(1))
		n.read(l, "localhost:11211", "127.0.0.1:11211", link(1), 41)
		if got := n.known(l); got > 41 {
			t.Errorf("%s: %d of 41 requests are known during the increment", test.name, got)
		}
		n.counted(l, "localhost:11211", link(test.owner), test.value, 1)
		if got := n.known(l); got != test.want {
			t.Errorf("%s: %d requests are known, want %d", test.name, got, test.want)
		}
	}
}

// A node counts alone once a shard has not had the counter twice in a row, until another shard owns the key.
func TestMissesInARow(t *testing.T) {
	l, link := counter.Plain, &memcached.Link{Instance: memcached.Instance{PID: 1, Start: 1000}}
	sends := func(n *tally) (delta uint64) {
		n.add(l, 1)
		delta, _ = n.send(l, l.Budget(1))
		return delta
	}
	misses := func(n *tally) { n.unsent(l, sends(n), counter.Absent) }
	counts := func(n *tally) { delta := sends(n); n.counted(l, "s", link, delta, delta) }
	moves := func(n *tally) { n.move(l, "s", "other") }
	for _, tt := range []struct {
		name string
		do   []func(*tally)
		want bool
	}{
		{"once", []func(*tally){misses}, false},
		{"twice", []func(*tally){misses, misses}, true},
		{"twice, but not in a row", []func(*tally){misses, counts, misses}, false},
		{"twice, then another shard owns the key", []func(*tally){misses, misses, moves}, false},
		{"once at each of two shards", []func(*tally){misses, moves, misses}, false},
	} {
		var n tally
		for _, do := range tt.do {
			do(&n)
		}
		if got := n.alone(); got != tt.want {
			t.Errorf("missing %s: the node counts alone: %t, want %t", tt.name, got, tt.want)
		}
	}
}
