package counter_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/counter"
)

// As many connections are kept as there are workers.
func TestConnectionsAreKept(t *testing.T) {
	// The race detector crashes when two threads fire timers of one bubble: go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, connections := range []int{0, 8, 20} {
		synctest.Test(t, func(t *testing.T) {
			var dials atomic.Int64
			connect := scripted(t, func(string) string {
				time.Sleep(time.Millisecond) // all workers are under way
				return "1\r\n"
			})
			s := counter.NewShard("s:1", counter.ShardOptions{Connections: connections, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return connect(ctx, network, addr)
			}})
			defer s.Close()
			workers := max(connections, 8)
			for range 5 {
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() { count(t, s, "k", 1, 1) })
				}
				wg.Wait()
			}
			if n := dials.Load(); n != int64(workers) {
				t.Errorf("Connections: %d: %d workers have dialled %d times", connections, workers, n)
			}
		})
	}
}
