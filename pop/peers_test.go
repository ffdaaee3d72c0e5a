package pop_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
)

// quiet are peers that receive nothing.
type quiet struct{}

func (quiet) Send([]byte)                   {}
func (quiet) SendTo(string, ...[]byte) bool { return true }
func (quiet) ClockAhead() time.Duration     { return 0 }

// asked are quiet peers that count the requests for their records.
type asked struct {
	quiet
	times *int
}

func (a asked) SendTo(string, ...[]byte) bool { *a.times++; return true }

// Only answers show whether asking a peer is worthwhile: records from elsewhere do not make a node ask more
// often.
func TestNewRecordsAreNotAnAnswer(t *testing.T) {
	const answer, news = 3, 1
	for _, tt := range []struct {
		name        string
		kind        byte
		least, most int // bounds of the number of times that n2 is asked in 20 s
	}{
		{"answers", answer, 75, 80},
		{"news", news, 5, 8},
	} {
		bubble.Test(t, func(t *testing.T) {
			times := 0
			n := newNode(t, "rules: []", func(o *pop.Options) {
				ofTwo(o)
				o.MitigationRecords, o.Peers = 1024, asked{times: &times}
			})
			theirs := newNode(t, "rules: []", ofTwo)
			now := time.Now()
			record := func(key byte) []byte {
				r := mitigation.Record{Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour), Lifted: true}
				r.Key[0] = key
				return r.AppendSent([]byte{tt.kind}, now)
			}
			if err := theirs.Receive("n3", record(255), 0); err != nil {
				t.Fatal(err)
			}
			for i := range byte(80) {
				n.ReceiveStatus("n2", theirs.Status(), false)
				if err := n.Receive("n2", record(i), 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(250 * time.Millisecond)
			}
			if times < tt.least || times > tt.most {
				t.Errorf("%s: n2 is asked %d times, want %d to %d", tt.name, times, tt.least, tt.most)
			}
		})
	}
}

// ofTwo sets the options of a node with two shards, room for 64 records and quiet peers.
func ofTwo(o *pop.Options) {
	o.Shards, o.MitigationRecords, o.Peers = []string{"s1:1", "s2:1"}, 64, quiet{}
}

// A node survives every message, and its status stays short.
func FuzzMessages(f *testing.F) {
	n := newNode(f, "rules: []", ofTwo)
	now := time.Now()
	r := mitigation.Record{Start: now.UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute), Lifted: true}
	f.Add(r.AppendSent([]byte{1}, now), true)
	f.Add(new(mitigation.Digest).Append([]byte{2}), true)
	f.Add(r.AppendSent(r.AppendSent([]byte{3}, now), now), true)
	f.Add([]byte{9}, true)
	f.Add([]byte{}, true)
	if err := n.Operator().Drain("s1:1", true); err != nil {
		f.Fatal(err)
	}
	f.Add(n.Status(), false)
	f.Add(append(n.Status()[:33], 200, 1, 2, 3), false)
	f.Fuzz(func(t *testing.T, message []byte, sent bool) {
		if sent {
			_ = n.Receive("n2", message, time.Second)
		} else {
			n.ReceiveStatus("n2", message, false)
		}
		if len(n.Status()) > 1000 {
			t.Errorf("the status has %d bytes", len(n.Status()))
		}
	})
}

// The time that a record was in transit shortens its lifetime. A record that was in transit for longer than its
// lifetime is ignored.
func TestReceiveAge(t *testing.T) {
	n := newNode(t, "rules: []", ofTwo)
	now := time.Now()
	record := func(key byte) []byte {
		r := mitigation.Record{Start: now.UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute), Lifted: true}
		r.Key[0] = key
		return r.AppendSent([]byte{1}, now)
	}
	before := n.Status()
	if err := n.Receive("n2", record(1), time.Minute); err != nil {
		t.Error(err)
	}
	if string(n.Status()) != string(before) {
		t.Error("a record that arrived after its end is active")
	}
	if err := n.Receive("n2", record(2), 59*time.Second); err != nil {
		t.Error(err)
	}
	if string(n.Status()) == string(before) {
		t.Error("a record with one second left was not learned")
	}
	before = n.Status()
	broken := record(3)
	broken[1] = 77 // the version
	if err := n.Receive("n2", append(broken, record(4)[1:]...), 0); err == nil {
		t.Error("no error for an invalid record")
	}
	if string(n.Status()) == string(before) {
		t.Error("the record after an invalid one was not learned")
	}
	for name, message := range map[string][]byte{"empty": {}, "of another kind": {77}, "cut short": record(3)[:50], "a digest cut short": {2, 0}} {
		if err := n.Receive("n2", message, 0); err == nil {
			t.Errorf("no error for a message that is %s", name)
		}
	}
}

// packed has a limit with as many sub-windows as 128 nodes can count in.
const packed = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m, sub_windows: 6}]}]"

// A node shows operators that the PoP has more nodes than max-nodes, or than the sub-windows of its limits allow.
// Without sub-windows it shows nothing.
func TestReadinessWithManyNodes(t *testing.T) {
	watched := func(o *pop.Options) {
		ofTwo(o)
		o.MetricsListen = "127.0.0.1:0"
	}
	crowded, whole := startNode(t, packed, watched), startNode(t, strings.Replace(packed, "6", "1", 1), watched)
	ready := func(n *pop.Node) string { return page(t, n, "metrics", "/readyz") }
	for _, step := range []struct {
		nodes int
		want  string
	}{
		{16, "ok\n"},
		{17, "ok\nthe PoP has 17 nodes but max_nodes is 16, so sub-windows may overflow when a node starts: set max_nodes to at least 17 on every node; see docs/problems.md#max_nodes\n"},
		{129, "ok\nlimits that each node counts alone, because they have too many sub-windows for 129 nodes: 1; see docs/problems.md#sub_windows\n" +
			"the PoP has 129 nodes but max_nodes is 16, so sub-windows may overflow when a node starts: set max_nodes to at least 129 on every node; see docs/problems.md#max_nodes\n"},
	} {
		for i := range step.nodes - 1 {
			for _, n := range []*pop.Node{crowded, whole} {
				n.ReceiveStatus(fmt.Sprintf("n%d", i+2), n.Status(), false)
			}
		}
		if got := ready(crowded); got != step.want {
			t.Errorf("with %d nodes, /readyz says %q, want %q", step.nodes, got, step.want)
		}
		if got := ready(whole); got != "ok\n" {
			t.Errorf("without sub-windows and with %d nodes, /readyz says %q", step.nodes, got)
		}
	}
}

// Nodes with different shards or client prefixes split counts, and report it. The order of the shards, drains and
// spelled-out defaults do not matter.
func TestNodesThatDiffer(t *testing.T) {
	shards := func(all ...string) func(*pop.Options) {
		return func(o *pop.Options) { o.Shards = all }
	}
	prefixes := func(ipv4, ipv6 int) func(*pop.Options) {
		return func(o *pop.Options) { o.Client = rule.ClientPrefix{IPv4: ipv4, IPv6: ipv6} }
	}
	for _, tt := range []struct {
		name    string
		set     func(*pop.Options)
		drained bool
		want    string // what differs
	}{
		{"nothing", func(*pop.Options) {}, false, ""},
		{"the order of the shards", shards("s3:1", "s1:1", "s2:1"), false, ""},
		{"another shard", shards("s3:1", "s2:1", "s4:1"), false, "shards"},
		{"fewer shards", shards("s1:1", "s2:1"), false, "shards"},
		{"defaults of prefixes", prefixes(32, 64), false, ""},
		{"IPv4 prefixes", prefixes(24, 0), false, "client_prefixes"},
		{"IPv6 prefixes", prefixes(0, 56), false, "client_prefixes"},
		{"prefixes, and a drain", prefixes(0, 56), true, "client_prefixes"},
	} {
		bubble.Test(t, func(t *testing.T) {
			var log strings.Builder
			base := func(o *pop.Options) {
				o.Shards, o.Peers, o.Logger = []string{"s1:1", "s2:1", "s3:1"}, quiet{}, slog.New(slog.NewTextHandler(&log, nil))
			}
			n := newNode(t, "rules: []", base)
			other := newNode(t, "rules: []", func(o *pop.Options) {
				base(o)
				tt.set(o)
			})
			if tt.drained {
				if err := other.Operator().Drain("s2:1", true); err != nil {
					t.Fatal(err)
				}
			}
			for range 32 {
				n.ReceiveStatus("n2", other.Status(), false)
				time.Sleep(time.Second)
			}
			for _, in := range []string{"secret", "shards", "rules", "client_prefixes"} {
				want := 0.0
				if in == tt.want {
					want = 1
				}
				if got, err := sum(n.Gatherer(), "edge_nodes_differing/"+in); got != want || err != nil {
					t.Errorf("%s: %v nodes differ in their %s, %v; want %v", tt.name, got, in, err, want)
				}
			}
			line := `msg="nodes have different settings, so they count separately: give all nodes the same" in=` + tt.want + " from=n2"
			if strings.Contains(log.String(), line) != (tt.want != "") {
				t.Errorf("%s: the log is\n%s", tt.name, &log)
			}
		})
	}
}

// Nodes with more mitigations than they have room for do not pass them around forever.
func TestRepairWithoutRoom(t *testing.T) {
	const nodes, room = 5, 128
	bubble.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		for i := range nodes {
			name := fmt.Sprint("n", i+1)
			n.nodes = append(n.nodes, newNode(t, "rules: []", func(o *pop.Options) {
				ofTwo(o)
				o.Name, o.MitigationRecords, o.Peers = name, room, way{n, name}
			}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go n.tell(ctx)
		random := rand.New(rand.NewPCG(1, 2))
		for range 6000 { // a minute
			now := time.Now()
			r := mitigation.Record{Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour), Lifted: true}
			binary.LittleEndian.PutUint64(r.Key[:], random.Uint64())
			for _, node := range n.nodes {
				if random.IntN(20) == 0 {
					continue // the message is lost
				}
				if err := node.Receive("n9", r.AppendSent([]byte{1}, now), 0); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		// All records of a node take ten messages, and are requested every eight seconds.
		if most := nodes * 8 * 11; n.sent > most {
			t.Errorf("%d messages within a minute, want at most %d", n.sent, most)
		}
	})
}
