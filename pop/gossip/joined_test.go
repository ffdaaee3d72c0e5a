package gossip_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop/gossip"
)

// Failed attempts to join are reported while there are no peers, whatever the reason: the address, the name
// or the key. So is the first peer.
func TestJoinResultsAreReported(t *testing.T) {
	t.Parallel()
	other := start(t, "other", withKeys(key(2)))
	for name, seed := range map[string]string{"nobody listens": harness.ReservePort(t), "no such name": "nobody.invalid:7946", "another key": other.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			failed, joined := "", false
			n := start(t, name, func(o *gossip.Options) {
				o.Keys, o.Join = [][]byte{key(1)}, []string{seed}
				o.Joined = func(addr string, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						failed = addr
						if strings.Contains(err.Error(), "\n") {
							t.Errorf("an error of several lines: %q", err)
						}
					} else {
						joined = true
					}
				}
			})
			is := func(what func() bool) func() bool {
				return func() bool {
					mu.Lock()
					defer mu.Unlock()
					return what()
				}
			}
			eventually(t, "it fails to join", is(func() bool { return failed == seed }))
			start(t, "another", withKeys(key(1)), n)
			eventually(t, "a node joins it", is(func() bool { return joined }))
		})
	}
}
