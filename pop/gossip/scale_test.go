package gossip

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edge/internal/bubble"
)

// A simulation has the nodes of a PoP, which exchange packets on a virtual clock. Some packets are lost.
type simulation struct {
	nodes  []*Gossip
	next   []time.Time // when each has something to send
	loss   float64
	takes  time.Duration
	ahead  time.Duration // how far the first node's clock is ahead of all others
	random *rand.Rand
	flying [][]byte
	to     []int // receivers of those

	packets, bytes int
	message        func(node int, message []byte)
	status         func(node int, from string, status []byte, relayed bool)
}

// simulate returns a simulation of count nodes.
func simulate(t *testing.T, count int, loss float64) *simulation {
	s := &simulation{loss: loss, takes: time.Millisecond, random: rand.New(rand.NewPCG(1, 2)), next: make([]time.Time, count),
		message: func(int, []byte) {}, status: func(int, string, []byte, bool) {}}
	peers := make([]*memberlist.Node, count)
	for i := range peers {
		peers[i] = nodeAt(uint32(i + 1))
	}
	for i := range count {
		g := newGossip(t, nil)
		g.run = uint64(i + 1)
		g.handler.Receive = func(_ string, message []byte, _ time.Duration) error {
			s.message(i, message)
			return nil
		}
		g.handler.ReceiveStatus = func(from string, status []byte, relayed bool) error {
			s.status(i, from, status, relayed)
			return nil
		}
		g.handler.Status = func() []byte { return make([]byte, 76) }
		g.version = s.random.Uint64N(1 << 20)
		g.statusAt = time.Now().Add(time.Duration(s.random.Int64N(int64(statusInterval))))
		for j := range count {
			if j != i {
				l := &link{run: uint64(j + 1), name: peers[j].Name, node: peers[j]}
				g.links[l.run] = l
			}
		}
		s.nodes = append(s.nodes, g)
	}
	return s
}

// steps advances the clock, by the time that packets take.
func (s *simulation) steps(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.step()
	}
}

func (s *simulation) step() {
	time.Sleep(s.takes)
	flying, to := s.flying, s.to
	s.flying, s.to = nil, nil
	for i, packet := range flying {
		s.nodes[to[i]].receive(packet, s.clock(to[i]))
	}
	for i, g := range s.nodes {
		now := s.clock(i)
		woken := false
		select {
		case <-g.wake:
			woken = true
		default:
		}
		if !woken && now.Before(s.next[i]) {
			continue
		}
		var out []outgoingPacket
		out, s.next[i] = g.due(now)
		for _, o := range out {
			s.packets++
			s.bytes += len(o.packet)
			if s.random.Float64() >= s.loss {
				s.flying = append(s.flying, o.packet)
				s.to = append(s.to, int(binary.BigEndian.Uint64(o.packet[9:]))-1)
			}
		}
	}
}

// clock returns the time by the ith node's clock.
func (s *simulation) clock(i int) time.Time {
	if i == 0 {
		return time.Now().Add(s.ahead)
	}
	return time.Now()
}

// With 30% packet loss, and up to a thousand nodes, every message reaches every node, most copies at once, and 99% within
// 150 ms, also if others are still passed on less and less often.
func TestThousandNodesHearMessages(t *testing.T) {
	for _, test := range []struct {
		nodes, messages int
		apart           time.Duration
	}{
		{8, 1, 0},
		{8, 400, 5 * time.Millisecond},
		{8, 30, 1050 * time.Millisecond},
		{100, 40, 5 * time.Millisecond},
		{1000, 4, 5 * time.Millisecond},
	} {
		bubble.Test(t, func(t *testing.T) {
			const last = 150 * time.Millisecond
			s := simulate(t, test.nodes, 0.3)
			for _, g := range s.nodes {
				g.version = s.random.Uint64N(1 << 20)
				g.statusAt = time.Now().Add(time.Hour)
			}
			atOnce, inTime, late := 0, 0, 0
			s.message = func(_ int, m []byte) {
				took := time.Since(time.UnixMicro(int64(binary.BigEndian.Uint64(m))))
				if took <= 2*s.takes {
					atOnce++
				}
				if took <= last {
					inTime++
				} else {
					late++
				}
			}
			for i := range test.messages {
				m := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMicro()))
				s.nodes[i%test.nodes].Send(append(m, make([]byte, 100)...))
				s.steps(test.apart)
			}
			s.steps(linger)
			all := test.messages * (test.nodes - 1)
			t.Logf("%d nodes: of %d copies %d arrived within %v, %d later; %d packets", test.nodes, all, inTime, last, late, s.packets)
			if atOnce < all*6/10 {
				t.Errorf("%d nodes: %d of %d copies arrived at once, want most", test.nodes, atOnce, all)
			}
			if inTime+late != all || late > all/100 {
				t.Errorf("%d nodes: of %d copies %d arrived within %v, %d later, want 99%% within that time and all in the end", test.nodes, all, inTime, last, late)
			}
		})
	}
}

// In such a PoP, every node notices a change on another node within 15 s, and receives little.
func TestThousandNodesHearStatuses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const nodes = 1000
		const every = (nodes-1)/everyNodes + 1 // of its statuses, one in this number is passed on
		const noticed = 15*time.Second - every*statusInterval
		s := simulate(t, nodes, 0.3)
		s.nodes[0].version = every - 1 // the next one is, so that the test is short
		s.takes = 10 * time.Millisecond
		s.nodes[0].handler.Status = func() []byte { return []byte("other rules") }
		heard := map[int]bool{}
		s.status = func(node int, _ string, status []byte, _ bool) {
			if string(status) == "other rules" {
				heard[node] = true
			}
		}
		began := time.Now()
		for len(heard) < nodes-1 && time.Since(began) < noticed {
			s.steps(100 * time.Millisecond)
		}
		took := time.Since(began)
		each := float64(s.packets) / nodes / took.Seconds()
		t.Logf("all nodes have noticed it after %v; each sent %.0f packets/s, %.0f KB/s", took, each, float64(s.bytes)/1e3/nodes/took.Seconds())
		if len(heard) < nodes-1 {
			t.Errorf("%d of %d nodes have noticed it after %v", len(heard), nodes-1, took)
		}
		if each > nodes {
			t.Errorf("each node sent %.0f packets/s, want at most a quarter of what it takes to tell all of them", each)
		}
	})
}

// With 30% packet loss, a node notices within 15 s that its clock was set wrong, and no other node considers its own
// clock wrong. More nodes change little, since a node compares its clock with 128 others: with 1,000 nodes it notices
// after 5 s instead of 4.
func TestManyNodesNoticeAClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const wrong, most = 2 * time.Second, 20 * time.Millisecond
		s := simulate(t, 150, 0.3)
		s.takes = 5 * time.Millisecond
		s.steps(6 * time.Second)
		began := time.Now()
		s.ahead = wrong
		for (s.nodes[0].ClockOffset() - wrong).Abs() > most {
			if s.steps(100 * time.Millisecond); time.Since(began) > 15*time.Second {
				t.Fatalf("after %v the node is %v ahead, want %v", time.Since(began), s.nodes[0].ClockOffset(), wrong)
			}
			for i, g := range s.nodes[1:] {
				if off := g.ClockOffset(); off.Abs() > most {
					t.Fatalf("node %d is %v ahead, want 0", i+1, off)
				}
			}
		}
		t.Logf("noticed after %v", time.Since(began))
	})
}
