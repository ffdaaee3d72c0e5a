package async

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// An unreliable address is one shard to the nodes, but the servers behind it change: connections go to one of several,
// replies are late or lost, and servers restart without their counters.
type unreliable struct {
	t       *rapid.T
	mu      sync.Mutex
	servers []*server
	turn    int
	late    time.Duration // of each reply
	loses   int           // one reply in this many, and its connection; 0 if none
	replies int
	running *sync.WaitGroup
}

type server struct {
	pipe  *shard.Pipe
	stop  context.CancelFunc
	conns []net.Conn
}

func (u *unreliable) start() *server {
	s := &server{pipe: shard.NewPipe()}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	anew := shard.New(shard.Options{})
	u.running.Go(func() { _ = anew.Serve(ctx, s.pipe) })
	return s
}

// restart replaces the ith server.
func (u *unreliable) restart(i int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.servers[i].end()
	u.servers[i] = u.start()
}

func (s *server) end() {
	s.stop()
	_ = s.pipe.Close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}

func (u *unreliable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.servers[u.turn%len(u.servers)]
	u.turn++
	conn, err := s.pipe.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, conn)
	return &unreliableConn{conn, u}, nil
}

type unreliableConn struct {
	net.Conn
	of *unreliable
}

func (c *unreliableConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.mu.Lock()
	late, loses := c.of.late, c.of.loses
	c.of.replies++
	lost := err == nil && loses > 0 && c.of.replies%loses == 0
	c.of.mu.Unlock()
	time.Sleep(late)
	if lost {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// made are requests, by key and time of arrival, by the clock of the node.
type made struct {
	key counter.Key
	at  time.Time
	n   uint64
}

// Whatever fails, a node never knows of more requests of a key than were made. Sub-windows are compared from the
// youngest on: a request may count as older than it is, never as younger.
func TestKnownNeverExceedsTheRequestsMade(t *testing.T) {
	total := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		wrong, seen := "", uint64(0)
		bubble.Test(t, func(t *testing.T) { wrong, seen = knownAtMostMade(rt) })
		if total += seen; wrong != "" {
			rt.Fatal(wrong)
		}
	})
	if total == 0 {
		t.Error("nothing was ever known: the test covers nothing")
	}
}

func knownAtMostMade(rt *rapid.T) (wrong string, seen uint64) {
	draw := func(least, most int, what string) int { return rapid.IntRange(least, most).Draw(rt, what) }
	var serving, running sync.WaitGroup
	defer serving.Wait()
	var addresses []*unreliable
	for range draw(1, 3, "shards") {
		u := &unreliable{t: rt, running: &serving}
		for range draw(1, 2, "servers behind it") {
			u.servers = append(u.servers, u.start())
		}
		addresses = append(addresses, u)
		defer func() {
			for _, s := range u.servers {
				s.end()
			}
		}()
	}
	var sets []*rule.Set
	for _, limits := range []string{
		"{threshold: 40, period: 12s}", "{threshold: 40, period: 12s, sub_windows: 6}", "{threshold: 40, period: 12s, sub_windows: 4}, {threshold: 9, period: 1s}",
		"{threshold: 9, period: 1s}, {threshold: 30, period: 12s, sub_windows: 3}",
	} {
		set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: ["+limits+"]}]"))
		if err != nil {
			rt.Fatal(err)
		}
		sets = append(sets, set)
	}
	secret, err := counter.NewSecret("a secret of the ledger")
	if err != nil {
		rt.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer running.Wait()
	defer cancel()
	type node struct {
		*Loop
		set   *rule.Set
		clock atomic.Int64 // how far it is ahead, in nanoseconds
	}
	var nodes []*node
	for i := range draw(1, 3, "nodes") {
		n := &node{set: sets[0]}
		o := Options{
			Secret: secret, Node: mitigation.NodeID(i + 1), Rules: sets[0], Table: mitigation.New(mitigation.Options{}), Logger: slog.New(slog.DiscardHandler),
			TrackedKeys: 64 * draw(1, 2, "tracked keys"), Now: func() time.Time { return time.Now().Add(time.Duration(n.clock.Load())) },
		}
		for j, u := range addresses {
			o.Shards = append(o.Shards, memcached.New(fmt.Sprintf("s%d:11211", j), wire.Options{Dial: u.dial, Timeout: 200 * time.Millisecond}))
		}
		if n.Loop, err = New(o, func(*rule.Rule) {}, func(*rule.Rule, uint64) {}); err != nil {
			rt.Fatal(err)
		}
		nodes = append(nodes, n)
		running.Go(func() { n.Run(ctx) })
	}
	// Keys of one part, so that few tracked keys evict each other.
	keys := make([]counter.Key, 3)
	for i := range keys {
		keys[i] = secret.Tag([]byte{byte(i)})
		keys[i][0] = 7
	}
	var ledger []made
	check := func() {
		for _, n := range nodes {
			for _, key := range keys {
				for _, v := range n.views(nil, key, n.o.Table.Generation(key)) {
					for back, number := range []uint64{v.Cur, v.Prev} {
						if text := exceedsLedger(v.limit, v.Index-int64(back), number, key, ledger); text != "" && wrong == "" {
							wrong = text
						}
						seen += v.limit.Layout.Sum(number)
					}
				}
			}
		}
	}
	for range draw(1, 60, "steps") {
		time.Sleep(time.Duration(draw(0, 400, "ms")) * time.Millisecond)
		u := addresses[draw(0, len(addresses)-1, "at shard")]
		n := nodes[draw(0, len(nodes)-1, "at node")]
		switch draw(0, 11, "event") {
		case 0:
			u.restart(draw(0, len(u.servers)-1, "server"))
		case 1:
			u.mu.Lock()
			u.late = time.Duration(draw(0, 250, "late")) * time.Millisecond
			u.mu.Unlock()
		case 2:
			u.mu.Lock()
			u.loses = draw(0, 4, "one reply in")
			u.mu.Unlock()
		case 3:
			var out []string
			for i := range addresses {
				if rapid.Bool().Draw(rt, "out") {
					out = append(out, fmt.Sprintf("s%d:11211", i))
				}
			}
			if err := n.SetOut(out...); err != nil {
				rt.Fatal(err)
			}
		case 4:
			n.set = sets[draw(0, len(sets)-1, "rules")]
			n.SetRules(n.set)
		case 5:
			n.clock.Add(int64(draw(-30, 30, "clock step")) * int64(time.Second))
		case 6:
			if now := n.o.Now(); rapid.Bool().Draw(rt, "lifted") {
				key := keys[draw(0, len(keys)-1, "lifted key")]
				record := mitigation.Record{Key: key, Node: 9, Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour)}
				n.Learn(record, "peer", now)
				_, _ = n.Lift(key, now)
			}
		}
		for range draw(0, 12, "requests") {
			now := n.o.Now()
			key := keys[draw(0, len(keys)-1, "key")]
			r := n.set.Rules()[0]
			cost := rapid.SampledFrom([]uint64{1, 1, 5, 300, 5000}).Draw(rt, "cost")
			ledger = append(ledger, made{key, now, cost})
			n.Offer(r, key, n.o.Table.Generation(key), &mitigation.Sample{Client: netip.MustParseAddr("192.0.2.1")}, cost, now)
			check()
		}
		time.Sleep(time.Duration(draw(0, 20, "until counted")) * time.Millisecond)
		check()
	}
	time.Sleep(time.Second)
	check()
	return wrong, seen
}

// exceedsLedger says how a number in the layout of limit exceeds the requests that were made in a window, or returns "".
func exceedsLedger(limit counter.Limit, index int64, number uint64, key counter.Key, ledger []made) string {
	fields := int(limit.Layout.Fields)
	actual := make([]uint64, fields)
	for _, m := range ledger {
		micros := m.at.UnixMicro()
		if m.key == key && micros/limit.Period == index {
			actual[int(micros%limit.Period*int64(fields)/limit.Period)] += m.n
		}
	}
	known, made := uint64(0), uint64(0)
	for k := fields - 1; k >= 0; k-- {
		known += number >> (int(limit.Layout.Bits) * k) & (1<<limit.Layout.Bits - 1)
		if made += actual[k]; known > made {
			return fmt.Sprintf("%d requests are known from sub-window %d of %d of window %d on, %d were made", known, k, fields, index, made)
		}
	}
	return ""
}

// A stalledShard hands out each batch with increments, and answers it when told.
type stalledShard struct{ batches chan sentBatch }

type sentBatch struct {
	items  []counter.Item // of the increments
	answer chan struct{}
}

func (s *stalledShard) Addr() string    { return "s:11211" }
func (s *stalledShard) Down() bool      { return false }
func (s *stalledShard) Available() bool { return true }

func (s *stalledShard) Exchange(b *counter.Batch) error {
	sent := sentBatch{answer: make(chan struct{})}
	for i := range b.Increments {
		op := &b.Increments[i]
		sent.items = append(sent.items, op.Item)
		op.Outcome, op.Value = counter.Done, op.Delta
	}
	for i := range b.Reads {
		b.Reads[i].Outcome = counter.Absent
	}
	if len(sent.items) > 0 {
		s.batches <- sent
		<-sent.answer
	}
	return nil
}

// A key is in one batch at a time, even while another one could be sent: its next increment follows the answer.
func TestAKeyIsInOneBatchAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &stalledShard{make(chan sentBatch, 10)}
		set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Options{Rules: set, Table: mitigation.New(mitigation.Options{}), Shards: []Shard{s}, Logger: slog.New(slog.DiscardHandler)},
			func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		offer := func(key byte) {
			c.Offer(set.Rules()[0], counter.Key{key}, 0, new(mitigation.Sample), 1, time.Now())
			time.Sleep(10 * time.Millisecond)
		}
		offer(1)
		offer(1)
		offer(2)
		first, second := <-s.batches, <-s.batches
		if len(first.items) != 1 || len(second.items) != 1 || first.items[0] == second.items[0] {
			t.Errorf("while a batch with %v is in flight, one with %v is sent", first.items, second.items)
		}
		close(first.answer)
		third := <-s.batches
		if len(third.items) != 1 || third.items[0] != first.items[0] {
			t.Errorf("after the answer a batch with %v is sent, want %v", third.items, first.items)
		}
		close(second.answer)
		close(third.answer)
		cancel()
		running.Wait()
	})
}

// A request reads the known counts before it offers itself, because the loop may count it at once: with exactly as many
// requests as the threshold allows, no key is mitigated.
func TestARequestIsNotCountedTwice(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: [{threshold: 3, period: 168h}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	const keys, atOnce = 40_000, 4
	c, err := New(Options{Rules: set, Table: mitigation.New(mitigation.Options{}), Logger: slog.New(slog.DiscardHandler), Interval: time.Nanosecond},
		func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running, offering sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	for worker := range atOnce {
		offering.Go(func() {
			for i := worker; i < keys; i += atOnce {
				key := c.o.Secret.Tag([]byte(fmt.Sprint(i)))
				for range 3 {
					c.Offer(set.Rules()[0], key, 0, new(mitigation.Sample), 1, time.Now())
					runtime.Gosched()
				}
			}
		})
	}
	offering.Wait()
	cancel()
	running.Wait()
	if n := c.o.Table.Len(); n > 0 {
		t.Errorf("%d of %d keys are mitigated with 3 requests of 3", n, keys)
	}
}
