package async_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A single is a limiter with one shard that can become unreachable.
type single struct {
	*limit.Limiter
	reg     *prometheus.Registry
	table   *mitigation.Table
	down    atomic.Bool
	server  *shard.Server
	pipe    *shard.Pipe
	end     func() // ends the limiter
	running sync.WaitGroup
	ended   sync.WaitGroup
	stop    context.CancelFunc
	secret  counter.Secret
}

func startSingle(t *testing.T, rules string, set func(*limit.Options, *mitigation.Options)) *single {
	t.Helper()
	a := &single{reg: prometheus.NewRegistry()}
	var err error
	a.server = shard.New(shard.Options{})
	a.pipe = shard.NewPipe()
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.running.Go(func() { _ = a.server.Serve(ctx, a.pipe) })
	if a.secret, err = counter.NewSecret("a secret of the faults"); err != nil {
		t.Fatal(err)
	}
	o := limit.Options{Secret: a.secret, Node: 2, Rules: parse(t, rules), Registerer: a.reg, Logger: slog.New(slog.DiscardHandler)}
	o.Shards = append(o.Shards, memcached.New("s:11211", wire.Options{Metrics: wire.NewMetrics(a.reg), Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
		if a.down.Load() {
			return nil, errors.New("down")
		}
		return a.pipe.Dial(ctx, n, addr)
	}}))
	mo := mitigation.Options{Registerer: a.reg}
	if set != nil {
		set(&o, &mo)
	}
	a.table = mitigation.New(mo)
	o.Table = a.table
	if a.Limiter, err = limit.New(o, nil); err != nil {
		t.Fatal(err)
	}
	run, end := context.WithCancel(context.Background())
	a.end = func() { end(); a.ended.Wait() }
	a.ended.Go(func() { a.Run(run) })
	return a
}

func (a *single) close() {
	a.end()
	_ = a.pipe.Close()
	a.stop()
	a.running.Wait()
}

func (a *single) decide(client uint32) limit.Decision {
	req := request(client)
	return a.Decide(&req, time.Now())
}

func (a *single) key(client uint32) counter.Key {
	req := request(client)
	req.Canonicalize(rule.ClientPrefix{})
	what, _ := a.Rules().Rules()[0].AppendKey(nil, &req)
	return a.secret.Tag(what)
}

const perMinute = "rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: %s}]"

// Requests that wait for an unreachable shard when the limiter stops are counted as dropped.
func TestStopCountsLostRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "0s"), nil)
		defer a.close()
		a.down.Store(true)
		for i := range uint32(50) {
			a.decide(i)
		}
		time.Sleep(time.Second)
		a.end()
		if n := value(t, a.reg, "edge_increments_dropped_total", ""); n != 50 {
			t.Errorf("the metric says %v for 50 requests that were not counted", n)
		}
	})
}

// A burst of many keys while the shard is unreachable: all are counted when it is back.
func TestBurstOfKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const keys = 60_000
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "0s"), func(o *limit.Options, _ *mitigation.Options) { o.Queue = 1 << 17 })
		defer a.close()
		a.down.Store(true)
		for i := range uint32(keys) {
			a.decide(i)
		}
		time.Sleep(500 * time.Millisecond)
		a.down.Store(false)
		time.Sleep(4 * time.Second)
		if n := value(t, a.reg, "edge_increments_total", "ok"); n != keys {
			t.Errorf("%v of %d keys are counted, %v dropped", n, keys, value(t, a.reg, "edge_increments_dropped_total", ""))
		}
	})
}

// A threshold is raised while a key waits for its shard: when the shard is back, the new threshold
// applies.
func TestRaisedThresholdWhileWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, fmt.Sprintf(perMinute, 5, "1h"), nil)
		defer a.close()
		a.down.Store(true)
		a.decide(1)
		time.Sleep(time.Second)
		a.SetRules(parse(t, fmt.Sprintf(perMinute, 1000, "1h"))) // a reload
		// Another node, which could reach the shard, has counted 20.
		s := memcached.New("s:1", wire.Options{Dial: a.pipe.Dial})
		defer s.Close()
		number, _ := counter.Window(time.Now(), 60e6)
		if _, err := increment(s, a.secret.CounterItem(a.key(1), counter.Limit{Threshold: 1000, Period: 60e6, Layout: counter.Plain}, number), 20); err != nil {
			t.Fatal(err)
		}
		a.down.Store(false)
		time.Sleep(2 * time.Second)
		if d := a.decide(1); d.Verdict.Refused() {
			t.Errorf("21 requests of 1000: %v, until %v: %v", d.Verdict, time.Until(d.Record.Deadline), d.Record.Why)
		}
	})
}

// Node 1, whose clock is 30 s ahead or behind, mitigates a client for 60 s. A request that is
// counted after that does not change the end.
func TestMitigationEndWithSkew(t *testing.T) {
	for _, skew := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			time.Sleep(time.Second)
			a := startSingle(t, fmt.Sprintf(strings.Replace(perMinute, "1m", "1s", 1), 5, "60s"), nil)
			defer a.close()
			for range 6 {
				a.decide(1)
			}
			now := time.Now()
			r := mitigation.Record{Key: a.key(1), Node: 1, Start: now.Add(skew).UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute),
				Why: mitigation.Why{Limit: counter.Limit{Threshold: 5, Period: 1e6, Layout: counter.Plain}, Cur: 6}}
			// as node 1 sends it: 60 s remain
			received, err := mitigation.ParseSent(r.AppendSent(nil, now), now)
			if err != nil {
				t.Fatal(err)
			}
			a.Learn(received, "peer", now)
			told := a.decide(1).Record.Deadline.Sub(now)
			time.Sleep(20 * time.Millisecond)
			d := a.decide(1)
			if got := d.Record.Deadline.Sub(now); got.Round(time.Second) != told.Round(time.Second) {
				t.Errorf("skew %v: the client was told %v, then %v", skew, told, got)
			}
		})
	}
}

// A request that takes 20 s to be answered is counted by its status then. This node's clock
// is 30 s behind that of node 1, which mitigated the client for 60 s.
func TestSkewDoesNotExtendMitigations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], count: {statuses: [200]}, limits: [{threshold: 5, period: 10s}], mitigation_timeout: 60s}]", nil)
		defer a.close()
		var slow []limit.Decision
		for range 6 {
			slow = append(slow, a.decide(1))
		}
		now := time.Now()
		r := mitigation.Record{Key: a.key(1), Node: 1, Start: now.Add(30 * time.Second).UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute),
			Why: mitigation.Why{Limit: counter.Limit{Threshold: 5, Period: 1e7, Layout: counter.Plain}, Cur: 6}}
		received, err := mitigation.ParseSent(r.AppendSent(nil, now), now)
		if err != nil {
			t.Fatal(err)
		}
		a.Learn(received, "peer", now)
		time.Sleep(20 * time.Second)
		told := a.decide(1).Record.Deadline.Sub(now)
		for _, d := range slow {
			a.Answered(&d, 200, nil, time.Now())
		}
		time.Sleep(20 * time.Millisecond)
		if got := a.decide(1).Record.Deadline.Sub(now); got != told {
			t.Errorf("announced an end after %v, but it ended after %v", told, got)
		}
	})
}

// A record that the full table evicts is learned again with the key's next count.
func TestEvictedRecordIsLearnedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, fmt.Sprintf(perMinute, 5, "1h"), func(_ *limit.Options, m *mitigation.Options) { m.Size = 64 }) // one record in each part
		defer a.close()
		for range 6 {
			a.decide(1)
		}
		time.Sleep(time.Second)
		if !a.decide(1).Verdict.Refused() {
			t.Fatal("not mitigated")
		}
		evict := func() {
			k := a.key(1)
			for i := range byte(3) {
				other := k
				other[15] ^= i + 1
				now := time.Now()
				a.Learn(mitigation.Record{Key: other, Start: now.UnixMicro(), Lifetime: time.Second, Deadline: now.Add(time.Second)}, "peer", now)
			}
		}
		time.Sleep(5 * time.Minute)
		evict()
		if a.decide(1).Verdict.Refused() {
			t.Fatal("not evicted")
		}
		time.Sleep(time.Second)
		if !a.decide(1).Verdict.Refused() {
			t.Fatal("not learned again in a new window")
		}
		evict() // once more in the same window
		passed := 0
		for range 4 {
			if !a.decide(1).Verdict.Refused() {
				passed++
			}
			time.Sleep(10 * time.Second)
		}
		if passed > 1 {
			t.Errorf("%d of 4 requests, 10 s apart, of a client that is blocked for an hour passed", passed)
		}
	})
}

// The sample of a key does not keep the whole request line in memory.
func TestMemoryOfSamples(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const keys = 1000
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "0s"), nil)
		defer a.close()
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		for i := range uint32(keys) {
			req := request(i)
			line := "GET /" + strings.Repeat("a", 60<<10) + " HTTP/1.1"
			req.Method, req.Path = line[:3], line[4:4+60<<10]
			a.Decide(&req, time.Now())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if grown := int64(heap() - before); grown > 16<<20 {
			t.Errorf("%d KiB for each tracked key", grown/keys>>10)
		}
		runtime.KeepAlive(a)
	})
}
