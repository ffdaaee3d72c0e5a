package async_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A gate holds back the replies of a shard while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // guarded by mu; closed when the gate opens, nil while it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

// through returns a connection to far through the gate. Its deadlines work while the gate is shut.
func (g *gate) through(far net.Conn) net.Conn {
	near, inner := net.Pipe()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(far, inner) // until near is closed
		far.Close()
		close(ended)
	}()
	go func() {
		defer inner.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			g.mu.Lock()
			shut := g.shut
			g.mu.Unlock()
			if shut != nil {
				select {
				case <-shut:
				case <-ended:
				}
			}
			if _, err := inner.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return near
}

// startGated is startSingle with a shard behind a gate.
func startGated(t *testing.T, rules string, timeout time.Duration) (*single, *gate) {
	t.Helper()
	g := new(gate)
	var a *single
	a = startSingle(t, rules, func(o *limit.Options, _ *mitigation.Options) {
		o.Shards = []async.Shard{memcached.New("s:11211", wire.Options{
			Timeout: timeout,
			Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
				conn, err := a.pipe.Dial(ctx, n, addr)
				if err != nil {
					return nil, err
				}
				return g.through(conn), nil
			},
		})}
	})
	return a, g
}
