package async_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

const (
	oneLimit    = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}]}]"
	threeLimits = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}, {threshold: 1000, period: 1m}, {threshold: 100, period: 1s}]}]"
	network     = "rules: [{id: all, characteristics: [network:24/48], limits: [{threshold: 1000000, period: 1h}], action: shed}]"
	minClients  = "rules: [{id: all, characteristics: [host], limits: [{threshold: 1000000, period: 1h}], min_clients: 10}]"
)

// A bench is a loop whose clock is advanced only by the test.
type bench struct {
	*async.Loop
	rule   *rule.Rule
	secret counter.Secret
	sample mitigation.Sample
	now    time.Time
}

func newBench(tb testing.TB, text string, tracked int, shards ...async.Shard) *bench {
	tb.Helper()
	b := &bench{now: time.Unix(1_800_000_000, 0), sample: mitigation.Sample{Method: "GET", Host: "example.com", Path: "/"}}
	rules, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	b.rule = rules.Rules()[0]
	table := mitigation.New(mitigation.Options{Size: 1024})
	if b.secret, err = counter.NewSecret("a secret of the memory"); err != nil {
		tb.Fatal(err)
	}
	b.Loop, err = async.New(async.Options{
		Secret: b.secret, Rules: rules, Table: table, Shards: shards,
		Interval: time.Millisecond, Queue: 1 << 11, TrackedKeys: tracked,
		Now: func() time.Time { return b.now }, Logger: slog.New(slog.DiscardHandler),
	}, func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// offer offers a request of the ith key.
func (b *bench) offer(i int) {
	var material [8]byte
	binary.BigEndian.PutUint64(material[:], uint64(i))
	b.Offer(b.rule, b.secret.Tag(material[:]), 0, &b.sample, 1, b.now)
}

// Known keys never cost an allocation. New ones cost three: the track, its sample, and
// the time of another read.
func TestAllocations(t *testing.T) {
	s := memcached.New(harness.StartMemcached(t).Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	const keys = 1024
	b := newBench(t, oneLimit, keys*2, s)
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
	next := keys
	countNew := func() {
		for range keys {
			b.offer(next)
			next++
		}
		b.Flush()
	}
	if n := testing.AllocsPerRun(20, countNew); n > 3*keys+keys/10 {
		t.Errorf("counting %d new keys allocates %v times, want 3 for each", keys, n)
	}
}

// floodDead offers keys to a loop whose three shards are dead, and returns how many bytes the keys
// then take. If goOut is set, the shards go out one after another meanwhile.
func floodDead(tb testing.TB, rules string, tracked, keys int, goOut bool, sample mitigation.Sample) (bytes int) {
	tb.Helper()
	var shards []async.Shard
	var names []string
	for i := range 3 {
		s := memcached.New(fmt.Sprintf("s%d:11211", i), wire.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}})
		defer s.Close()
		shards, names = append(shards, s), append(names, s.Addr())
	}
	b := newBench(tb, rules, tracked, shards...)
	if sample != (mitigation.Sample{}) {
		b.sample = sample
	}
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
	b.now = b.now.Add(time.Second) // nothing waits for further offers
	b.Flush()
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

// longest is the sample that takes the most memory.
var longest = mitigation.Sample{Method: strings.Repeat("M", 4<<10), Host: strings.Repeat("h", 4<<10), Path: "/" + strings.Repeat("p", 60<<10)}

// The help of --tracked-keys states the maximum memory of a key, whatever shards do.
func TestMemoryWithDeadShards(t *testing.T) {
	const tracked = 1 << 13
	for rules, most := range map[string]int{oneLimit: 340, network: 500, minClients: 440, threeLimits: 880} {
		for _, sample := range []mitigation.Sample{{}, longest} {
			more := most
			if sample == longest {
				more += 120
			}
			got := floodDead(t, rules, tracked, 3*tracked, false, sample)
			t.Logf("%s: %d bytes a key", rules, got/tracked)
			if got > tracked*more {
				t.Errorf("%s: %d keys take %d bytes each, want at most %d", rules, tracked, got/tracked, more)
			}
		}
	}
}

// BenchmarkMemoryWithDeadShards tracks the default number of keys.
func BenchmarkMemoryWithDeadShards(b *testing.B) {
	for name, rules := range map[string]string{"in": oneLimit, "longest": oneLimit, "out": oneLimit, "network": network, "min_clients": minClients, "three limits": threeLimits} {
		b.Run(name, func(b *testing.B) {
			tracked, keys := 1<<18, 1_400_000
			if testing.Short() {
				tracked, keys = 1<<13, 1<<15
			}
			for b.Loop() {
				bytes := floodDead(b, rules, tracked, keys, name == "out", map[bool]mitigation.Sample{true: longest}[name == "longest"])
				b.ReportMetric(float64(bytes)/float64(tracked), "B/tracked-key")
				b.ReportMetric(float64(bytes)/1e6, "MB")
			}
		})
	}
}
