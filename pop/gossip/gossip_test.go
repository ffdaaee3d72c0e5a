package gossip_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/edgelimit/edge/pop/gossip"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(settling{m})
}

// Some goroutines of memberlist, such as a probe that is under way, end some time after Shutdown.
type settling struct{ *testing.M }

func (m settling) Run() int {
	code := m.M.Run()
	for giveUp := time.Now().Add(patience); code == 0 && goleak.Find() != nil && time.Now().Before(giveUp); {
	}
	return code
}

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func withKeys(keys ...[]byte) func(*gossip.Options) {
	return func(o *gossip.Options) { o.Keys = keys }
}

func TestPeers(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 3, withKeys(key(1)))
	want := []gossip.Peer{
		{Name: "n1", Addr: nodes[0].Addr(), Meta: []byte("meta of n1")},
		{Name: "n3", Addr: nodes[2].Addr(), Meta: []byte("meta of n3")},
	}
	clocks := cmpopts.IgnoreFields(gossip.Peer{}, "ClockAhead", "ClockKnown") // they may be known by now
	eventually(t, "n2 knows the others", func() bool { return cmp.Equal(want, nodes[1].Peers(), clocks) })
	if err := nodes[2].Stop(); err != nil {
		t.Error(err)
	}
	nodes[2].Gossip = nil
	whole(t, nodes[:2])
	eventually(t, "n1 counts two nodes", func() bool { return nodes[0].metric(t, "edge_gossip_nodes", "") == 2 })
	if problems, err := testutil.GatherAndLint(nodes[0].registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// Every message reaches every other peer, once.
func TestSend(t *testing.T) {
	t.Parallel()
	const count = 10000
	nodes := startAll(t, 4, withKeys(key(1)))
	const atOnce = 500 // what does not arrive within a second, on a slow machine, is given up
	for i := range count {
		nodes[i%len(nodes)].Send(numbered(i))
		if (i+1)%atOnce == 0 {
			allReceived(t, nodes, i+1)
		}
	}
	repeated := 0.0
	for _, n := range nodes {
		repeated += n.metric(t, "edge_gossip_packets_retransmitted_total", "")
	}
	t.Logf("%v packets were sent again", repeated)
}

// allReceived waits until each node has each message that it did not send, and checks that
// it has it only once. Message i is from node i modulo their count.
func allReceived(t *testing.T, nodes []*node, count int) {
	t.Helper()
	eventually(t, "all messages are received", func() bool {
		received := 0
		for _, n := range nodes {
			received += n.received()
		}
		return received >= count*(len(nodes)-1)
	})
	for of, n := range nodes {
		for i := range count {
			want := 1
			if i%len(nodes) == of {
				want = 0
			}
			if got := n.times(numbered(i)); got != want {
				t.Errorf("%s has message %d %d times, want %d", n.name, i, got, want)
			}
		}
	}
}

// Even if a third of all packets is lost, every message arrives.
func TestSendOverLoss(t *testing.T) {
	t.Parallel()
	const count = 2000
	nodes := startAll(t, 4, nil)
	for _, n := range nodes {
		n.wire.set(func(w *wire) { w.loss = 0.3 })
	}
	for i := range count {
		nodes[i%len(nodes)].Send(numbered(i))
	}
	allReceived(t, nodes, count)
	if nodes[0].metric(t, "edge_gossip_packets_retransmitted_total", "") == 0 {
		t.Error("no packet was sent again: none was lost")
	}
}

func TestSendTo(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 3, withKeys(key(1)))
	long := bytes.Repeat([]byte("x"), gossip.MaxMessage)
	if !nodes[0].SendTo("n3", []byte("a"), long, []byte{}) {
		t.Error("n3 is not a peer")
	}
	if nodes[0].SendTo("n9", []byte("a")) {
		t.Error("n9 is a peer")
	}
	eventually(t, "three messages are received", func() bool { return nodes[2].received() == 3 })
	if nodes[1].received() > 0 {
		t.Error("n2 has what was for n3")
	}
}

func TestStatusAndClock(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 3, nil)
	eventually(t, "n1 has the status of the others", func() bool {
		nodes[0].mu.Lock()
		defer nodes[0].mu.Unlock()
		return nodes[0].statuses["n2"] == "status of n2" && nodes[0].statuses["n3"] == "status of n3"
	})
	// All share this machine's clock. A busy machine delays some answers, but not all.
	eventually(t, "the clock is that of the others", func() bool { return nodes[0].ClockOffset().Abs() < time.Second })
}

// shortLived lets the dead be forgotten immediately, as after a long partition.
func shortLived(o *gossip.Options) {
	*o = o.Tuned(func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout = 50*time.Millisecond, 20*time.Millisecond
		c.SuspicionMult, c.GossipToTheDeadTime = 1, time.Millisecond
	})
}

// cut cuts the network between two parts, or mends it.
func cut(cut bool, one, other []*node) {
	for _, parts := range [][2][]*node{{one, other}, {other, one}} {
		for _, from := range parts[0] {
			for _, to := range parts[1] {
				from.wire.set(func(w *wire) { w.cut[to.Addr()] = cut })
			}
		}
	}
}

// A partition that lasts longer than memberlist remembers dead nodes heals, even between nodes that were never told of
// each other's addresses.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	var nodes []*node
	for i := range 5 {
		var seeds []*node
		if i > 0 {
			seeds = nodes[:1]
		}
		nodes = append(nodes, start(t, fmt.Sprint("n", i+1), shortLived, seeds...))
	}
	whole(t, nodes)
	for range 2 {
		cut(true, nodes[:2], nodes[2:])
		whole(t, nodes[:2])
		whole(t, nodes[2:])
		nodes[0].Send([]byte("meanwhile")) // n5 hears it if it is joined again soon
		cut(false, nodes[:2], nodes[2:])
		whole(t, nodes)
	}
	eventually(t, "messages cross where the partition was", func() bool {
		nodes[4].Send([]byte("hello")) // again: a busy one may be declared dead for a moment
		nodes[0].Send([]byte("hello"))
		return nodes[0].times([]byte("hello")) > 0 && nodes[4].times([]byte("hello")) > 0
	})
}

// A node that dies comes back under its name, with another address, and takes part before
// the others have found out that it was dead.
func TestRestart(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 3, nil)
	nodes[2].kill()
	nodes[2] = start(t, "n3", nil, nodes[0])
	eventually(t, "n3 finds the others", func() bool { return len(nodes[2].Peers()) >= 2 })
	eventually(t, "n3 takes part", func() bool {
		nodes[2].Send([]byte("back")) // again: the others may find n3 a moment later than it finds them
		nodes[0].Send([]byte("welcome"))
		return nodes[1].received() == 2 && nodes[2].received() == 1
	})
	whole(t, nodes)
}

// A lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Peers that leave in order are told from those that fail, and nothing tries to join them again.
func TestLeaving(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	nodes := startAll(t, 3, func(o *gossip.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	nodes[0].Leaving("n2", true)
	_ = nodes[1].Stop()
	nodes[1].Gossip = nil
	nodes[2].kill()
	for _, want := range []string{`level=INFO msg="node left the PoP" name=n2 `, `level=WARN msg="node failed: it no longer answers" name=n3 `} {
		eventually(t, want, func() bool { return strings.Contains(log.String(), want) })
	}
}

// Nodes ignore one that has no key, has a different key, or sends garbage, and it hears nothing from them.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 2, withKeys(key(1)))
	for name, set := range map[string]func(*gossip.Options){"other": withKeys(key(2)), "none": nil} {
		start(t, name, set, nodes[0]).Send([]byte("let me in"))
	}
	for _, garbage := range [][]byte{{}, {8}, []byte("\x08\x01garbage"), bytes.Repeat([]byte{0xff}, 1400)} {
		if _, err := nodes[1].wire.WriteTo(garbage, nodes[0].Addr()); err != nil {
			t.Fatal(err)
		}
	}
	// This arrives after what the strangers sent.
	nodes[1].Send([]byte("hello"))
	eventually(t, "a peer is heard", func() bool { return nodes[0].received() == 1 })
	if len(nodes[0].Peers()) != 1 || nodes[0].times([]byte("hello")) != 1 {
		t.Errorf("peers %v, hello was received %d times", nodes[0].Peers(), nodes[0].times([]byte("hello")))
	}
	// The strangers keep trying to join. Node 2 got only garbage.
	want := "cannot decrypt what the node at 127.0.0.1 sends, so counts are split: give all nodes the same gossip key"
	eventually(t, "it reports the other key", func() bool { return nodes[0].JoinProblem() == want })
	if got := nodes[1].JoinProblem(); got != "" {
		t.Errorf("the problem of another node: %q", got)
	}
}

// Without a key, a packet that memberlist cannot decode does not add a peer: nobody
// could join until that peer was declared dead.
func TestGarbageIsNotAPeer(t *testing.T) {
	t.Parallel()
	forgiving := func(o *gossip.Options) {
		*o = o.Tuned(func(c *memberlist.Config) { c.ProbeInterval = time.Hour }) // nobody is declared dead
	}
	nodes := startAll(t, 2, forgiving)
	const alive = 4 // of memberlist's messages; what follows is a map without entries
	if _, err := nodes[1].wire.WriteTo([]byte{alive, 0x80}, nodes[0].Addr()); err != nil {
		t.Fatal(err)
	}
	nodes[1].Send([]byte("after it"))
	eventually(t, "what is sent after it is received", func() bool { return nodes[0].received() == 1 })
	whole(t, append(nodes, start(t, "n3", forgiving, nodes[0])))
}

// Packets that are recorded and sent again change nothing: neither immediately, nor after the
// receiver has begun another run.
func TestReplay(t *testing.T) {
	t.Parallel()
	tuned := func(o *gossip.Options) {
		o.Keys = [][]byte{key(1)}
		*o = o.Tuned(func(c *memberlist.Config) {
			c.ProbeInterval, c.ProbeTimeout = 50*time.Millisecond, 20*time.Millisecond
			c.SuspicionMult = 1
		})
	}
	nodes := startAll(t, 2, tuned)
	nodes[0].wire.set(func(w *wire) { w.capture = true })
	for i := range 20 {
		nodes[0].Send(numbered(i))
	}
	eventually(t, "all is received", func() bool { return nodes[1].received() == 20 })
	sent := time.Now()
	nodes[0].wire.set(func(w *wire) { w.capture = false })
	replay := func() {
		nodes[0].wire.mu.Lock()
		packets := nodes[0].wire.captured
		nodes[0].wire.mu.Unlock()
		for _, p := range packets {
			if _, err := nodes[0].wire.WriteTo(p, nodes[1].Addr()); err != nil {
				t.Fatal(err)
			}
		}
	}
	replay()
	eventually(t, "repeated packets are refused", func() bool {
		return nodes[1].metric(t, "edge_gossip_packets_refused_total", "replayed") > 0
	})
	for i := range 20 {
		if times := nodes[1].times(numbered(i)); times != 1 {
			t.Errorf("message %d was received %d times", i, times)
		}
	}
	nodes[1].kill()
	whole(t, nodes[:1])
	// Until then the sender itself tells a new run what it sent before.
	eventually(t, "the sender forgets what it has sent", func() bool { return time.Since(sent) > gossip.KeepBatches })
	nodes[1] = start(t, "n2", tuned, nodes[0])
	whole(t, nodes)
	replay()
	eventually(t, "packets for the previous run are refused", func() bool {
		return nodes[1].metric(t, "edge_gossip_packets_refused_total", "stranger") > 0
	})
	if got := nodes[1].received(); got > 0 {
		t.Errorf("%d messages for the previous run were received", got)
	}
}

// A key is replaced in three steps, and nodes understand each other after each.
func TestSetKeys(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 3, withKeys(key(1)))
	sent := 0
	for _, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
		for _, n := range nodes {
			if err := n.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			nodes[sent%3].Send(numbered(sent))
			sent++
			eventually(t, fmt.Sprint("message ", sent, " is received"), func() bool {
				return nodes[0].received()+nodes[1].received()+nodes[2].received() == 2*sent
			})
		}
	}
	late := start(t, "n4", withKeys(key(1)), nodes[0])
	nodes[0].Send([]byte("without the old key"))
	eventually(t, "the others are heard", func() bool { return nodes[1].received() > 2*sent/3 })
	if len(late.Peers()) > 0 || late.received() > 0 {
		t.Error("the old key is still accepted")
	}
	if err := nodes[0].SetKeys(nil); err == nil {
		t.Error("encryption can be switched off")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := gossip.Options{Name: "n1", Listen: "127.0.0.1:0"}
	for _, test := range []struct {
		name   string
		change func(*gossip.Options)
		want   string // part of the error
	}{
		{"short key", func(o *gossip.Options) { o.Keys = [][]byte{make([]byte, 5)} }, "invalid key of 5 bytes"},
	} {
		o := good
		test.change(&o)
		if _, err := gossip.New(o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	if _, err := gossip.New(good); err != nil {
		t.Error(err)
	}
	n := start(t, "n1", nil)
	taken := good
	taken.Listen, taken.Logger = n.Addr(), slog.New(slog.DiscardHandler)
	g, err := gossip.New(taken)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(n.handler(), nil); err == nil {
		t.Error("two nodes listen on the same address")
	}
}
