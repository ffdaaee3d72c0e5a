package async_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A chance is a random generator that goroutines can share.
type chance struct {
	mu     sync.Mutex
	random *rand.Rand
}

// of returns a number below n.
func (c *chance) of(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// pick returns one of its arguments at random.
func (c *chance) pick(of ...int) int { return of[c.of(len(of))] }

// A troubledShard is slow, goes down, refuses, and loses requests and replies. It records the
// requests that it lost.
type troubledShard struct {
	async.Shard
	chance *chance
	down   atomic.Bool

	lost, made ledger // increments, by counter
}

// A ledger holds increments by counter. A counter's value does not show them, because it may start with others' counts.
type ledger struct {
	mu     sync.Mutex
	deltas map[counter.Item][]uint64 // guarded by mu
}

func (l *ledger) add(op *counter.Increment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deltas == nil {
		l.deltas = map[counter.Item][]uint64{}
	}
	l.deltas[op.Item] = append(l.deltas[op.Item], op.Delta)
}

// sum returns the number of requests in increments of counters with this layout.
func (l *ledger) sum(layout counter.Layout, items ...counter.Item) (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range items {
		for _, delta := range l.deltas[item] {
			n += layout.Sum(delta)
		}
	}
	return n
}

func (s *troubledShard) Down() bool      { return s.down.Load() }
func (s *troubledShard) Available() bool { return !s.Down() || s.chance.of(20) == 0 }

// trouble delays a round trip, and may fail it before it is sent.
func (s *troubledShard) trouble() error {
	time.Sleep(time.Duration(s.chance.of(20)) * time.Millisecond)
	if s.Down() || s.chance.of(8) == 0 {
		return counter.ErrNotSent
	}
	return nil
}

// Exchange loses operations and answers.
func (s *troubledShard) Exchange(b *counter.Batch) error {
	if err := s.trouble(); err != nil {
		return err
	}
	passed := counter.Batch{Stores: b.Stores, Reads: b.Reads}
	var kept []int
	for i := range b.Increments {
		if op := &b.Increments[i]; s.chance.of(8) == 0 {
			op.Outcome = counter.Unknown
			s.lost.add(op)
			continue
		}
		passed.Increments = append(passed.Increments, b.Increments[i])
		kept = append(kept, i)
	}
	err := s.Shard.Exchange(&passed)
	for i, at := range kept {
		b.Increments[at] = passed.Increments[i]
		if op := &b.Increments[at]; op.Outcome == counter.Done {
			if s.made.add(op); s.chance.of(8) == 0 {
				op.Outcome = counter.Unknown
			}
		}
	}
	return err
}

// causes of dropped counts.
var causes = []string{"queue_full", "shard_unavailable", "key_forgotten", "sub_window_full", "limit_changed"}

// Whatever fails, and whichever bound is reached, each request is in one counter, in a metric by
// cause, or in an increment without a reply, for each limit of its rule.
func TestEveryRequestIsAccountedFor(t *testing.T) {
	dropped := map[string]uint64{} // in all schedules
	unseen := func(cause string) bool { return dropped[cause] == 0 }
	// Goroutines are scheduled freely: a schedule differs each time.
	for seed := uint64(0); seed < 12 || seed < 200 && slices.ContainsFunc(causes, unseen); seed++ {
		bubble.Test(t, func(t *testing.T) { accountFor(t, seed, dropped) })
	}
	for _, cause := range causes {
		if unseen(cause) {
			t.Errorf("nothing was dropped with cause %s: the test covers too little", cause)
		}
	}
}

// accountFor runs a schedule of requests, reloads, shard changes and shard failures, which continue while the limiter
// stops, and adds the dropped requests to droppedBy.
func accountFor(t *testing.T, seed uint64, droppedBy map[string]uint64) {
	const shards, clients = 3, 300
	secret, err := counter.NewSecret("a secret of the accounts")
	if err != nil {
		t.Fatal(err)
	}
	chance := &chance{random: rand.New(rand.NewPCG(seed, 3))}
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var troubled []*troubledShard // two clients per shard
	for i := range shards {
		server := shard.New(shard.Options{})
		pipe := shard.NewPipe()
		serving.Go(func() { _ = server.Serve(ctx, pipe) })
		s := memcached.New(fmt.Sprintf("s%d:11211", i), wire.Options{Dial: pipe.Dial})
		defer s.Close()
		for range 2 {
			troubled = append(troubled, &troubledShard{Shard: s, chance: chance})
		}
	}
	var sets []*rule.Set
	var limits []counter.Limit
	for _, how := range []string{"10s", "10s, sub_windows: 5", "10s, sub_windows: 6", "20s"} {
		// While shards are down nothing is mitigated, so that sub-windows are filled.
		set := parse(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], on_failure: open, limits: ["+
			"{threshold: 90, period: %s}, {threshold: 100000, period: 1s}]}]", how))
		sets, limits = append(sets, set), append(limits, set.Rules()[0].Limits[0].Counted())
	}
	limits = append(limits, sets[0].Rules()[0].Limits[1].Counted())
	table := mitigation.New(mitigation.Options{})
	registry := prometheus.NewRegistry()
	l, err := limit.New(limit.Options{
		Secret: secret, Rules: sets[0], Table: table, Registerer: registry, Logger: slog.New(slog.DiscardHandler),
		Queue: chance.pick(16, 100, 4096), TrackedKeys: chance.pick(64, 200, 4096),
		Drain: time.Duration(chance.pick(1, 100, 2000)) * time.Millisecond,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	move := func() {
		var any []async.Shard
		for i := range shards {
			any = append(any, troubled[2*i+chance.of(2)])
		}
		members, out := someShards(any, chance.of)
		if err := l.SetShards(members, out...); err != nil {
			t.Error(err)
		}
	}
	trouble := func() {
		switch chance.of(40) {
		case 0, 1:
			move()
		case 2:
			l.SetRules(sets[chance.of(len(sets))])
		case 3, 4:
			s := troubled[chance.of(len(troubled))]
			s.down.Store(!s.Down())
		}
	}
	move()
	run, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		l.Run(run)
		close(ended)
	}()
	begin, offered := time.Now(), uint64(0)
	for range 300 {
		time.Sleep(time.Duration(chance.of(10)) * time.Millisecond)
		trouble()
		client := uint32(chance.of(clients))
		for range chance.pick(1, 1, 5, 5, 5, 5, 5, 1000) {
			req := request(client)
			d := l.Decide(&req, time.Now())
			for r := range d.Counts {
				offered += uint64(len(r.Limits))
			}
		}
	}
	cancel()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
			trouble()
		}
	}

	counted, lost, dropped := uint64(0), uint64(0), uint64(0)
	var tags []counter.Key
	for client := range uint32(clients) {
		req := request(client)
		req.Canonicalize(rule.ClientPrefix{})
		what, _ := l.Rules().Rules()[0].AppendKey(nil, &req)
		tags = append(tags, secret.Tag(what))
	}
	for _, of := range limits {
		var items []counter.Item
		first, _ := counter.Window(begin, of.Period)
		last, _ := counter.Window(time.Now(), of.Period)
		for number := first; number <= last; number++ {
			for _, tag := range tags {
				items = append(items, secret.CounterItem(tag, of, number))
			}
		}
		for _, s := range troubled {
			counted += s.made.sum(of.Layout, items...)
			lost += s.lost.sum(of.Layout, items...)
		}
	}
	for _, cause := range causes {
		n := uint64(value(t, registry, "edge_increments_dropped_total", cause))
		dropped += n
		droppedBy[cause] += n
	}
	if counted+dropped+lost != offered {
		t.Errorf("schedule %d: of %d requests, %d were counted, %d dropped and %d lost in transit; %d are not accounted for",
			seed, offered, counted, dropped, lost, int64(offered-counted-dropped-lost))
	}
}
