package main

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

var (
	secret = func() counter.Secret {
		s, err := counter.NewSecret("a secret of the benchmark")
		harness.Check(err)
		return s
	}()
	minute = counter.Limit{Threshold: 1_000_000, Period: 60e6, Layout: counter.Plain}
)

// ttl is the time to live of a counter, in seconds.
var ttl = counter.TTL(minute.Period)

// keyOf returns the nth key.
func keyOf(n uint64, fresh bool) counter.Key {
	if !fresh {
		n %= known
	}
	var material [8]byte
	binary.BigEndian.PutUint64(material[:], n)
	return secret.Tag(material[:])
}

// makeKnown counts all known keys once.
func makeKnown(addr string) {
	c := memcached.New(addr, wire.Options{Timeout: 10 * time.Second})
	defer c.Close()
	var b counter.Batch
	for n := uint64(0); n < known; {
		for b.Reset(); len(b.Increments) < *inBatch; n++ {
			b.Increments = append(b.Increments, counter.Increment{Item: secret.CounterItem(keyOf(n, false), minute, 1), Delta: 1, TTL: ttl, Create: true})
		}
		harness.Check(c.Exchange(&b))
	}
}

// Gomemcache runs eight goroutines, each of which counts one key after another. A known key takes an INCR. A
// new one takes an INCR that misses, an ADD, and a GET of the previous window and of the record.
type gomemcache struct{ *memcache.Client }

func openGomemcache(addr string, fresh bool) (client, func()) {
	if !fresh {
		makeKnown(addr)
	}
	c := memcache.New(addr)
	c.MaxIdleConns, c.Timeout = 8, 10*time.Second
	return gomemcache{c}, func() { _ = c.Close() }
}

func (c gomemcache) count(from uint64, fresh bool, end time.Time) int {
	var next atomic.Uint64
	next.Store(from)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				key := keyOf(next.Add(1)-1, fresh)
				item := secret.CounterItem(key, minute, 1).String()
				_, err := c.Increment(item, 1)
				if errors.Is(err, memcache.ErrCacheMiss) {
					err = c.Add(&memcache.Item{Key: item, Value: []byte("1"), Expiration: ttl})
					harness.Check(err)
					_, err = c.GetMulti([]string{secret.CounterItem(key, minute, 0).String(), secret.RecordItem(key).String()})
				}
				harness.Check(err)
			}
		})
	}
	wg.Wait()
	return int(next.Load() - from)
}

// Batches runs two goroutines, as many as a node has batches in flight to a shard, which exchange full batches.
// For new keys these have the same operations as gomemcache.
type batches struct {
	async.Shard
	batch [2]counter.Batch
	reads bool
}

func openBatches(addr string, fresh bool) (client, func()) {
	if !fresh {
		makeKnown(addr)
	}
	c := memcached.New(addr, wire.Options{Timeout: 10 * time.Second})
	return &batches{reads: fresh, Shard: c}, func() { _ = c.Close() }
}

// openWrites omits the reads of new keys, which take about half of memcached's time.
func openWrites(addr string, fresh bool) (client, func()) {
	b, end := openBatches(addr, fresh)
	b.(*batches).reads = false
	return b, end
}

func (c *batches) count(from uint64, fresh bool, end time.Time) int {
	var next atomic.Uint64
	next.Store(from)
	var wg sync.WaitGroup
	for i := range c.batch {
		wg.Go(func() {
			b := &c.batch[i]
			for time.Now().Before(end) {
				b.Reset()
				for n := next.Add(uint64(*inBatch)) - uint64(*inBatch); len(b.Increments) < *inBatch; n++ {
					key := keyOf(n, fresh)
					b.Increments = append(b.Increments, counter.Increment{Item: secret.CounterItem(key, minute, 1), Delta: 1, TTL: ttl, Create: fresh})
					if c.reads {
						b.Reads = append(b.Reads, counter.Read{Item: secret.CounterItem(key, minute, 0)}, counter.Read{Item: secret.RecordItem(key)})
					}
				}
				harness.Check(c.Exchange(b))
				for j := range b.Increments {
					if b.Increments[j].Outcome != counter.Done {
						harness.Check(errors.New("a key was not counted"))
					}
				}
			}
		})
	}
	wg.Wait()
	return int(next.Load() - from)
}

// Counting offers keys to a limiter.
type counting struct {
	*limit.Limiter
	rule *rule.Rule
	done *countingShard
	sent uint64
}

// A closer is a shard that can be closed.
type closer interface {
	async.Shard
	Close() error
}

// A countingShard counts the increments that it has answered.
type countingShard struct {
	closer
	n atomic.Uint64
}

func (s *countingShard) Exchange(b *counter.Batch) error {
	err := s.closer.Exchange(b)
	harness.Check(err)
	s.n.Add(uint64(len(b.Increments)))
	return err
}

func openCounting(addr string, fresh bool) (client, func()) {
	return countIn(memcached.New(addr, wire.Options{Timeout: 10 * time.Second}), fresh)
}

// countIn offers keys to a limiter whose shard is to.
func countIn(to closer, fresh bool) (client, func()) {
	rules, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}]}]"))
	harness.Check(err)
	table := mitigation.New(mitigation.Options{})
	shard := &countingShard{closer: to}
	l, err := limit.New(limit.Options{Secret: secret, Rules: rules, Table: table, Shards: []async.Shard{shard}, Logger: slog.New(slog.DiscardHandler)}, nil)
	harness.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	c := &counting{Limiter: l, rule: rules.Rules()[0], done: shard}
	for n := 0; !fresh && n < known; {
		n += c.count(uint64(n), false, time.Now().Add(100*time.Millisecond))
	}
	return c, func() {
		cancel()
		running.Wait()
		_ = shard.Close()
	}
}

// atOnce is the maximum number of pending keys. It is less than the size of the queue, so that none is dropped.
const atOnce = 8 * 1024

func (c *counting) count(from uint64, fresh bool, end time.Time) int {
	n := from
	for now := time.Now(); now.Before(end); now = time.Now() {
		for range 256 {
			key := keyOf(n, fresh)
			c.Offer(c.rule, key, 0, new(mitigation.Sample), 1, now)
			n++
			c.sent++
		}
		for c.sent-c.done.n.Load() > atOnce {
			time.Sleep(200 * time.Microsecond)
		}
	}
	for c.sent > c.done.n.Load() {
		time.Sleep(time.Millisecond)
	}
	return int(n - from)
}
