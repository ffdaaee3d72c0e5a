package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/bubble"
)

// me is the run of the node of newGossip.
const me = 1

// newGossip returns the gossip of n1, which is not started.
func newGossip(t rapid.TB, set func(*Options)) *Gossip {
	t.Helper()
	o := Options{Name: "n1", Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	if set != nil {
		set(&o)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g.run = me
	g.handler = Handler{
		Receive:       func(string, []byte, time.Duration) error { return nil },
		Status:        func() []byte { return nil },
		ReceiveStatus: func(string, []byte, bool) error { return nil },
	}
	return g
}

// record makes g call received with the messages and statuses that it receives.
func (g *Gossip) record(received func(from, kind string, content []byte, age time.Duration)) {
	g.handler.Receive = func(from string, message []byte, age time.Duration) error {
		received(from, "message", message, age)
		return nil
	}
	g.handler.ReceiveStatus = func(from string, status []byte, _ bool) error {
		received(from, "status", status, 0)
		return nil
	}
}

func packetOf(h header, entries ...entry) []byte {
	packet := h.packet()
	for _, e := range entries {
		packet = e.append(packet)
	}
	return packet
}

// packed returns the bytes of a batch.
func packed(messages ...[]byte) (b []byte) {
	for _, m := range messages {
		b = appendMessage(b, m)
	}
	return b
}

// peerAt returns memberlist's node for a run; its address ends with the run.
func peerAt(name string, run uint32) *memberlist.Node {
	ip := binary.BigEndian.AppendUint32(nil, 10<<24|run)
	return &memberlist.Node{Name: fmt.Sprintf("%s@%x", name, run), Addr: net.IP(ip), Port: 7946, Meta: []byte{metaVersion}}
}

// nodeAt returns memberlist's node that is named after its run: n7.
func nodeAt(run uint32) *memberlist.Node { return peerAt(fmt.Sprint("n", run), run) }

// meet makes the node of a run a peer, and returns the link to it.
func (g *Gossip) meet(run uint32) *link {
	g.joined(nodeAt(run))
	return g.links[uint64(run)]
}

// dies makes the node of a run a dead one, and leaves one that has left.
func (g *Gossip) dies(run uint32) { g.left(nodeAt(run)) }
func (g *Gossip) leaves(run uint32) {
	g.Leaving(fmt.Sprint("n", run), true)
	g.dies(run)
}

// Seeds and former peers are joined again while they are missing; nodes that have left or have another address
// are not.
func TestMissing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGossip(t, func(o *Options) { o.Join = []string{"10.0.0.1:7946", "10.0.0.2:7946"} })
		g.addr = "10.0.0.1:7946"
		for _, tt := range []struct {
			name string
			do   func()
			want []string
		}{
			{"nobody was met", func() {}, []string{"10.0.0.2:7946"}},
			{"all are peers", func() { g.joined(nodeAt(2)); g.joined(nodeAt(3)); g.joined(nodeAt(4)) }, nil},
			{"one is declared dead", func() { g.dies(3) }, []string{"10.0.0.3:7946"}},
			{"one leaves", func() { g.leaves(4) }, []string{"10.0.0.3:7946"}},
			{"a seed leaves", func() { g.leaves(2) }, []string{"10.0.0.2:7946", "10.0.0.3:7946"}},
			{"a peer changes its address", func() {
				g.joined(nodeAt(4))
				moved := nodeAt(4)
				moved.Port = 7947
				g.joined(moved)
			}, []string{"10.0.0.2:7946", "10.0.0.3:7946"}},
			{"for a day", func() { time.Sleep(forget) }, []string{"10.0.0.2:7946", "10.0.0.3:7946"}},
			{"for longer", func() { time.Sleep(time.Second) }, []string{"10.0.0.2:7946"}},
			{"another one is declared dead", func() { g.joined(nodeAt(6)); g.dies(6) }, []string{"10.0.0.2:7946", "10.0.0.6:7946"}},
			{"it is back at another address", func() { g.joined(peerAt("n6", 7)) }, []string{"10.0.0.2:7946"}},
			{"one whose earlier run has left is declared dead", func() {
				g.joined(nodeAt(8))
				g.Leaving("n8", true) // an old status, which a third node has passed on
				g.Leaving("n8", false)
				g.dies(8)
			}, []string{"10.0.0.2:7946", "10.0.0.8:7946"}},
			{"one that is back after it has left is declared dead", func() {
				g.joined(nodeAt(9))
				g.leaves(9)
				g.joined(nodeAt(9))
				g.dies(9)
			}, []string{"10.0.0.2:7946", "10.0.0.8:7946", "10.0.0.9:7946"}},
		} {
			tt.do()
			if d := cmp.Diff(tt.want, g.missing(t.Context())); d != "" {
				t.Errorf("%s: missing (-want +got):\n%s", tt.name, d)
			}
		}
	})
}

// If very many nodes are gone, a node tries to join only some at a time.
func TestMissingIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGossip(t, nil)
		const nodes = maxMissing + 50
		for run := range uint32(nodes) {
			time.Sleep(time.Second)
			g.joined(nodeAt(run))
			g.dies(run)
		}
		if missing := g.missing(t.Context()); len(missing) != maxMissing {
			t.Errorf("%d of %d nodes are looked for, want %d", len(missing), nodes, maxMissing)
		}
	})
}

// The number of remembered runs is bounded. Those of peers and of the last nodes that are gone stay: their
// packets must not be received twice.
func TestLinksAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGossip(t, nil)
		const peer, gone = 1<<20 + 1, maxLinks + 100
		g.joined(nodeAt(peer))
		for run := range uint32(gone) {
			time.Sleep(time.Second)
			g.joined(nodeAt(run))
			g.leaves(run)
		}
		if len(g.links) > maxLinks {
			t.Errorf("%d runs are remembered, want at most %d", len(g.links), maxLinks)
		}
		for _, run := range []uint64{peer, gone - 1, gone - 2, gone - maxLinks/2} {
			if g.links[run] == nil {
				t.Errorf("run %d is forgotten", run)
			}
		}
	})
}

// Packets for which there is no room are counted.
func TestDroppedPackets(t *testing.T) {
	g := newGossip(t, nil)
	g.joined(nodeAt(2))
	const more = 50 // more than there is room for
	g.SendTo("n2", slices.Repeat([][]byte{make([]byte, MaxMessage)}, MaxSendTo+more)...)
	if got := testutil.ToFloat64(g.metrics.dropped); len(g.bulk) != MaxSendTo || got != more {
		t.Errorf("%d packets wait and %v are dropped, want %d and %d", len(g.bulk), got, MaxSendTo, more)
	}
}

// The number of pending messages is bounded, and further ones are counted as dropped. The caller may reuse its bytes.
func TestSendIsBounded(t *testing.T) {
	g := newGossip(t, nil)
	g.joined(nodeAt(2))
	message := append([]byte("first"), make([]byte, MaxMessage-5)...) // a batch has room for one
	for range maxWaiting + 3 {
		g.Send(message)
	}
	copy(message, "other")
	if got := testutil.ToFloat64(g.metrics.dropped); len(g.waiting) != maxWaiting || got != 3 {
		t.Errorf("%d messages wait and %v are dropped, want %d and 3", len(g.waiting), got, maxWaiting)
	}
	if got := string(g.waiting[0].bytes[2:7]); got != "first" {
		t.Errorf("%q waits to be sent, want %q", got, "first")
	}
}

// Messages and statuses that cannot be decoded are logged at a limited rate.
func TestCannotDecode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := newGossip(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		g.meet(2)
		log.Reset()
		g.handler.ReceiveStatus = func(string, []byte, bool) error { return errors.New("nonsense") }
		for n := range uint64(100) {
			packet := packetOf(header{kindStatus, 2, me, n + 1, 0, 0}, entry{2, n + 1, 1, nil})
			g.receive(packet, time.Now())
			time.Sleep(250 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "\n"); got != 3 || strings.Count(log.String(), "unlogged=39\n") != 2 {
			t.Errorf("logged %d lines in 25 s, want 3, each for 40 occurrences:\n%s", got, &log)
		}
	})
}

// Nodes of another version are reported for as long as they are there.
func TestOtherVersion(t *testing.T) {
	g := newGossip(t, nil)
	other := nodeAt(2)
	other.Meta[0] = metaVersion - 1
	g.joined(other)
	g.joined(nodeAt(3))
	if got := g.JoinProblem(); !strings.Contains(got, "another version") || !strings.Contains(got, " 10.0.0.2:7946,") {
		t.Errorf("the problem is %q", got)
	}
	if got := len(g.Peers()); got != 1 || g.links[2].reached(time.Now()) || !g.links[3].reached(time.Now()) {
		t.Errorf("%d peers, want 1, and messages go to the other version: %t", got, g.links[2].reached(time.Now()))
	}
	if g.dies(2); g.JoinProblem() != "" {
		t.Errorf("the problem is %q when that node has left", g.JoinProblem())
	}
}
