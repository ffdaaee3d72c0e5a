package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/redis"
	"github.com/edgelimit/edge/counter/wire"
)

func newRedis(addr string) *redis.Client {
	at, err := redis.ParseAddress("redis://"+addr, nil)
	harness.Check(err)
	return redis.New(at, wire.Options{Timeout: 10 * time.Second})
}

func openRedisCounting(addr string, fresh bool) (client, func()) {
	return countIn(newRedis(addr), fresh)
}

// openRedis makes batches without reads for a Redis.
func openRedis(addr string, fresh bool) (client, func()) {
	c := newRedis(addr)
	b := &batches{Shard: c}
	if !fresh {
		b.count(0, true, time.Now()) // connects
		var all counter.Batch
		for n := range uint64(known) {
			all.Increments = append(all.Increments, counter.Increment{Item: itemOf(n), Delta: 1, TTL: ttl, Create: true})
		}
		harness.Check(c.Exchange(&all))
	}
	return b, func() { _ = c.Close() }
}

// itemOf returns the counter of the nth known key.
func itemOf(n uint64) counter.Item { return secret.CounterItem(keyOf(n, false), minute, 1) }

// A pipeline counts keys with one command each, two for new keys, in pipelines of two goroutines.
type pipeline func(items []counter.Item, fresh bool)

func (p pipeline) count(from uint64, fresh bool, end time.Time) int {
	var next atomic.Uint64
	next.Store(from)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var items []counter.Item
			for time.Now().Before(end) {
				items = items[:0]
				for n := next.Add(uint64(*inBatch)) - uint64(*inBatch); len(items) < *inBatch; n++ {
					items = append(items, secret.CounterItem(keyOf(n, fresh), minute, 1))
				}
				p(items, fresh)
			}
		})
	}
	wg.Wait()
	return int(next.Load() - from)
}

func openGoRedis(addr string, fresh bool) (client, func()) {
	_, end := openRedis(addr, fresh)
	end()
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	ctx := context.Background()
	return pipeline(func(items []counter.Item, fresh bool) {
		p := c.Pipeline()
		for _, item := range items {
			if fresh {
				p.SetNX(ctx, item.String(), 0, time.Duration(ttl)*time.Second)
			}
			p.IncrBy(ctx, item.String(), 1)
		}
		_, err := p.Exec(ctx)
		harness.Check(err)
	}), func() { _ = c.Close() }
}

func openRueidis(addr string, fresh bool) (client, func()) {
	_, end := openRedis(addr, fresh)
	end()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableRetry: true, DisableCache: true})
	harness.Check(err)
	ctx := context.Background()
	return pipeline(func(items []counter.Item, fresh bool) {
		commands := make(rueidis.Commands, 0, 2*len(items))
		for _, item := range items {
			if fresh {
				commands = append(commands, c.B().Set().Key(item.String()).Value("0").Nx().ExSeconds(int64(ttl)).Build())
			}
			commands = append(commands, c.B().Incrby().Key(item.String()).Increment(1).Build())
		}
		for _, result := range c.DoMulti(ctx, commands...) {
			if err := result.Error(); err != nil && !rueidis.IsRedisNil(err) {
				harness.Check(err)
			}
		}
	}), c.Close
}
