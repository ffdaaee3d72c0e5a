package async_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// During a flood, a shard leaves the ring, and its waiting keys overflow the queue of another shard. The node continues
// to count.
func TestShardGoesOutDuringFlood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var refuses, stalls atomic.Bool // the flooded shard
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1h}]}]", nil)
		defer a.close()
		flooded := memcached.New("flooded:11211", wire.Options{
			Failures: 1_000_000, // its breaker stays closed
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				switch {
				case refuses.Load():
					return nil, errors.New("refused")
				case stalls.Load():
					near, _ := net.Pipe() // nobody reads
					return near, nil
				}
				return a.pipe.Dial(ctx, network, addr)
			},
		})
		defer flooded.Close()
		other := memcached.New("other:11211", wire.Options{Dial: a.pipe.Dial})
		defer other.Close()
		table := mitigation.New(mitigation.Options{})
		l, err := limit.New(limit.Options{
			Secret: a.secret, Rules: a.Rules(), Table: table, Shards: []async.Shard{flooded, other},
			Queue: 1 << 17, TrackedKeys: 1024,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		defer func() { end(); <-ended }()
		client := uint32(0)
		flood := func(n int) {
			for range n {
				req := request(client)
				l.Decide(&req, time.Now())
				client++
			}
			time.Sleep(5 * time.Millisecond) // until they are flushed
		}

		refuses.Store(true)
		flood(8_000) // these wait to be tried again
		refuses.Store(false)
		stalls.Store(true)
		flood(64_000) // these wait for an answer
		if err := l.SetOut("other:11211"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stalls.Store(false)
		time.Sleep(10 * time.Second)
		for range 20 {
			req := request(client)
			l.Decide(&req, time.Now())
		}
		time.Sleep(time.Second)
		req := request(client)
		if d := l.Decide(&req, time.Now()); d.Verdict != limit.Blocked {
			t.Errorf("after the flood a client that exceeds its threshold is %v, want %v", d.Verdict, limit.Blocked)
		}
	})
}
