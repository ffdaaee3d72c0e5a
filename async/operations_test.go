package async_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A countedShard counts operations.
type countedShard struct {
	async.Shard
	increments, reads int
}

func (s *countedShard) Exchange(b *counter.Batch) error {
	s.increments += len(b.Increments)
	s.reads += len(b.Reads)
	return s.Shard.Exchange(b)
}

// Sub-windows need no more increments and reads than whole windows.
func TestSubWindowsCostNoOperation(t *testing.T) {
	operations := func(subWindows string) string {
		server := shard.New(shard.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		pipe := shard.NewPipe()
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(ctx, pipe) })
		defer serving.Wait()
		defer cancel()
		table := mitigation.New(mitigation.Options{})
		client := memcached.New("s:11211", wire.Options{Dial: pipe.Dial, Timeout: 10 * time.Second})
		defer client.Close()
		s := &countedShard{Shard: client}
		now := time.Unix(1_800_000_000, 0)
		l, err := limit.New(limit.Options{
			Rules: parse(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: 96, period: 12s, sub_windows: %s}]}]", subWindows)),
			Table: table, Shards: []async.Shard{s}, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 6))
		for i := range 5000 {
			now = now.Add(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			req := request(uint32(random.IntN(50)))
			if d := l.Decide(&req, now); d.Verdict != limit.Passed {
				t.Fatalf("request %d is %v", i, d.Verdict)
			}
			if i%10 == 0 {
				l.Flush()
				l.Step()
			}
		}
		return fmt.Sprintf("%d increments, %d reads", s.increments, s.reads)
	}
	if whole, sub := operations("1"), operations("auto"); whole != sub {
		t.Errorf("with sub-windows: %s; with whole windows: %s", sub, whole)
	}
}

// A mapShard answers immediately.
type mapShard struct {
	async.Shard // no other method is called
	values      map[counter.Item]uint64
}

func (mapShard) Addr() string    { return "map" }
func (mapShard) Down() bool      { return false }
func (mapShard) Available() bool { return true }

func (s mapShard) Exchange(b *counter.Batch) error {
	for i := range b.Increments {
		op := &b.Increments[i]
		s.values[op.Item] += op.Delta
		op.Value, op.Outcome = s.values[op.Item], counter.Done
	}
	for i := range b.Stores {
		b.Stores[i].Outcome = counter.Done
	}
	for i := range b.Reads {
		b.Reads[i].Outcome = counter.Absent
	}
	return nil
}

// BenchmarkCounting measures a node's work for a request that passes, without sockets: the decision,
// and counting in batches of ten.
func BenchmarkCounting(b *testing.B) {
	for _, subWindows := range []string{"1", "auto"} {
		b.Run(subWindows, func(b *testing.B) {
			table := mitigation.New(mitigation.Options{})
			now := time.Unix(1_800_000_000, 0)
			l, err := limit.New(limit.Options{
				Rules: parse(b, fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: 96, period: 12s, sub_windows: %s}]}]", subWindows)),
				Table: table, Shards: []async.Shard{mapShard{values: map[counter.Item]uint64{}}}, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := uint32(0)
			for b.Loop() {
				req := request(i % 1000)
				l.Decide(&req, now)
				if i++; i%10 == 0 {
					now = now.Add(10 * time.Millisecond)
					l.Flush()
				}
			}
		})
	}
}
