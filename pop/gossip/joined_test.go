package gossip_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop/gossip"
)

// Failed attempts to join are reported while there are no peers, whatever the reason: the address, the name
// or the key. With the first peer the problem has passed. If
// all peers die, that is reported.
func TestJoinProblem(t *testing.T) {
	t.Parallel()
	other := start(t, "other", withKeys(key(2)))
	for name, seed := range map[string]string{"nobody listens": harness.ReservePort(t), "no such name": "nobody.invalid:7946", "another key": other.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, name, func(o *gossip.Options) { o.Keys, o.Join = [][]byte{key(1)}, []string{seed} })
			eventually(t, "it fails to join", func() bool { return strings.Contains(n.JoinProblem(), "cannot join the PoP at "+seed) })
			if problem := n.JoinProblem(); strings.Contains(problem, "\n") {
				t.Errorf("a problem of several lines: %q", problem)
			}
			another := start(t, "another", withKeys(key(1)), n)
			eventually(t, "a node joins it", func() bool { return n.JoinProblem() == "" })
			another.kill()
			eventually(t, "it is dead", func() bool { return strings.HasPrefix(n.JoinProblem(), "cannot join the PoP at ") })
		})
	}
}
