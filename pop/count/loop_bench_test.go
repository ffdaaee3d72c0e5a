package count_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/shard/memcachedtest"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// bytesPerKey bounds the memory of a tracked key with one limit, in bytes, whatever shards do.
const bytesPerKey = 1200

const allRules = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}]}]"

// A bench is a loop whose clock only the test moves.
type bench struct {
	*count.Loop
	rule   *rule.Rule
	secret counter.Secret
	now    time.Time
}

func newBench(tb testing.TB, tracked int, shards ...count.Shard) *bench {
	tb.Helper()
	b := &bench{now: time.Unix(1_800_000_000, 0)}
	rules, err := rule.Parse("rules.yaml", []byte(allRules))
	if err != nil {
		tb.Fatal(err)
	}
	b.rule = rules.Rules()[0]
	table, err := mitigation.New(mitigation.Options{Size: 1024})
	if err != nil {
		tb.Fatal(err)
	}
	if b.secret, err = counter.NewSecret("a secret of the memory"); err != nil {
		tb.Fatal(err)
	}
	b.Loop, err = count.New(count.Options{
		Secret: b.secret, Rules: rules, Table: table, Shards: shards,
		Exceeded: func(counter.Key, *rule.Rule, count.Finding, *mitigation.Sample, time.Time) (r mitigation.Record, ok bool) {
			return r, false
		},
		Started: func(mitigation.Record, *rule.Rule) {},
		Learn:   func(mitigation.Record, time.Time) {},
		Settle:  time.Second, Interval: time.Millisecond, Queue: 1 << 11, TrackedKeys: tracked,
		Nodes: func() int { return 1 }, Now: func() time.Time { return b.now }, Ahead: func() time.Duration { return 0 },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// offer offers a request of the ith key.
func (b *bench) offer(i int) {
	var material [8]byte
	binary.BigEndian.PutUint64(material[:], uint64(i))
	b.Offer(b.rule, b.secret.Tag(material[:]), 0, mitigation.Sample{Method: "GET", Host: "example.com", Path: "/"}, b.now)
}

// Known keys never cost an allocation.
func TestKnownKeysAllocateNothing(t *testing.T) {
	s := counter.NewShard(memcachedtest.Start(t).Addr, counter.ShardOptions{Timeout: 10 * time.Second})
	defer s.Close()
	const keys = 1024
	b := newBench(t, keys*2, s)
	count := func() {
		for i := range keys {
			b.offer(i)
		}
		b.Flush()
	}
	count()
	count()
	if n := testing.AllocsPerRun(20, count); n > keys/20 {
		t.Errorf("counting %d known keys allocates %v times", keys, n)
	}
}

// floodDead offers keys to a loop whose three shards are dead, and returns how many bytes the keys
// take then. If they go out, they do so one after the other meanwhile.
func floodDead(tb testing.TB, tracked, keys int, goOut bool) (bytes int) {
	tb.Helper()
	var shards []count.Shard
	var names []string
	for i := range 3 {
		s := counter.NewShard(fmt.Sprintf("s%d:11211", i), counter.ShardOptions{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}})
		defer s.Close()
		shards, names = append(shards, s), append(names, s.Addr())
	}
	b := newBench(tb, tracked, shards...)
	before := heap()
	for i := range keys {
		b.offer(i)
		if i%256 == 255 {
			b.now = b.now.Add(time.Millisecond)
			b.Flush()
		}
		if at := i * 4 / keys; goOut && at > 0 && i == at*keys/4 {
			if err := b.SetOut(names[:at]...); err != nil {
				tb.Fatal(err)
			}
		}
	}
	bytes = heap() - before
	if n, _ := b.Backlog(); n != tracked {
		tb.Errorf("%d keys wait for a shard, want %d", n, tracked)
	}
	return bytes
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestMemoryWithDeadShards(t *testing.T) {
	const tracked = 1 << 13
	got := floodDead(t, tracked, 3*tracked, false)
	t.Logf("%d bytes a key", got/tracked)
	if got > tracked*bytesPerKey {
		t.Errorf("%d keys take %d bytes each, want %d at most", tracked, got/tracked, bytesPerKey)
	}
}

// BenchmarkMemoryWithDeadShards tracks the default number of keys.
func BenchmarkMemoryWithDeadShards(b *testing.B) {
	for name, goOut := range map[string]bool{"in": false, "out": true} {
		b.Run(name, func(b *testing.B) {
			const tracked = 1 << 18
			for b.Loop() {
				bytes := floodDead(b, tracked, 1_400_000, goOut)
				b.ReportMetric(float64(bytes)/tracked, "B/tracked-key")
				b.ReportMetric(float64(bytes)/1e6, "MB")
			}
		})
	}
}
