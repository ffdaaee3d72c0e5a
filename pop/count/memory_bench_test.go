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
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// bytesPerKey bounds the memory of a tracked key with one limit, in bytes, whatever shards do.
const bytesPerKey = 1200

// floodDead offers keys to a loop whose three shards are dead, and returns how many bytes the loop
// takes then. If they go out, they do so one after the other meanwhile.
func floodDead(tb testing.TB, tracked, keys int, goOut bool) (bytes int) {
	tb.Helper()
	now := time.Unix(1_800_000_000, 0)
	rules, err := rule.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 1h}]}]"))
	if err != nil {
		tb.Fatal(err)
	}
	table, err := mitigation.New(mitigation.Options{Size: 1024})
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := counter.NewSecret("a secret of the memory")
	if err != nil {
		tb.Fatal(err)
	}
	var shards []count.Shard
	var names []string
	for i := range 3 {
		s := counter.NewShard(fmt.Sprintf("s%d:11211", i), counter.ShardOptions{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}})
		defer s.Close()
		shards, names = append(shards, s), append(names, s.Addr())
	}
	before := heap()
	loop, err := count.New(count.Options{
		Secret: secret, Rules: rules, Table: table, Shards: shards,
		Exceeded: func(counter.Key, *rule.Rule, count.Finding, *mitigation.Sample, time.Time) (r mitigation.Record, ok bool) { return r, false },
		Started:  func(mitigation.Record, *rule.Rule) {},
		Learn:    func(mitigation.Record, time.Time) {},
		Settle:   time.Second, Interval: time.Millisecond, Queue: 1 << 10, TrackedKeys: tracked,
		Nodes: func() int { return 1 }, Now: func() time.Time { return now }, Ahead: func() time.Duration { return 0 },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	var material [8]byte
	for i := range keys {
		binary.BigEndian.PutUint64(material[:], uint64(i))
		loop.Offer(rules.Rules()[0], secret.Tag(material[:]), 0, mitigation.Sample{Method: "GET", Host: "example.com", Path: "/"}, now)
		if i%256 == 255 {
			now = now.Add(time.Millisecond)
			loop.Flush()
		}
		if at := i * 4 / keys; goOut && at > 0 && i == at*keys/4 {
			if err := loop.SetOut(names[:at]...); err != nil {
				tb.Fatal(err)
			}
		}
	}
	bytes = heap() - before
	if n, _ := loop.Backlog(); n != tracked {
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
	const tracked = 1 << 14
	if got := floodDead(t, tracked, 1_400_000*tracked/(1<<18), false); got > tracked*bytesPerKey {
		t.Errorf("%d keys take %d bytes each, want %d at most", tracked, got/tracked, bytesPerKey)
	}
}

// BenchmarkMemoryWithDeadShards tracks as many keys as a node does by default.
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
