package memcached_test

import (
	"testing"

	"github.com/edgelimit/edge/counter/memcached"
)

// An instance with a name stays the same if the clock of its machine is set, so that its counts are not added twice.
func TestInstances(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b memcached.Instance
		same bool
	}{
		{"memcached", memcached.Instance{PID: 1, Start: 1000}, memcached.Instance{PID: 1, Start: 1001}, true},
		{"memcached, restarted", memcached.Instance{PID: 1, Start: 1000}, memcached.Instance{PID: 1, Start: 1010}, false},
		{"another process", memcached.Instance{PID: 1, Start: 1000}, memcached.Instance{PID: 2, Start: 1000}, false},
		{"the embedded shard, after the clock was set", memcached.Instance{PID: 1, Start: 1000, Name: "x"}, memcached.Instance{PID: 1, Start: 4600, Name: "x"}, true},
		{"two embedded shards in a process", memcached.Instance{PID: 1, Start: 1000, Name: "x"}, memcached.Instance{PID: 1, Start: 1000, Name: "y"}, false},
	} {
		a, b := &memcached.Link{Instance: tt.a}, &memcached.Link{Instance: tt.b}
		if a.Same(b) != tt.same || a.Apart(b) == tt.same {
			t.Errorf("%s: same %t, apart %t, want same %t", tt.name, a.Same(b), a.Apart(b), tt.same)
		}
	}
}
