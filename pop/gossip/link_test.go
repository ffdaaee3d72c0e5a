package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/bubble"
)

// SendTo accepts packets for a peer only when earlier ones have been sent, a burst at a time: otherwise repairs would
// add to an overload.
func TestSendToWaits(t *testing.T) {
	g := newGossip(t, nil)
	g.meet(2)
	now := time.Now()
	send := func(packets int) bool {
		return g.SendTo("n2", slices.Repeat([][]byte{make([]byte, MaxMessage)}, packets)...)
	}
	sent := func() (n int) {
		out, _ := g.due(now)
		for _, o := range out {
			if h, entries, _ := parsePacket(o.packet); h.Kind == kindNews && entries[0].number == 0 {
				n++
			}
		}
		return n
	}
	if !send(burst+1) || send(1) {
		t.Error("want the first packets to be accepted, and none while they wait")
	}
	if got := sent(); got != burst {
		t.Errorf("%d packets are sent at once, want %d", got, burst)
	}
	if send(1) {
		t.Error("a packet is accepted although another waits")
	}
	if now = now.Add(pause); sent() != 1 || !send(1) {
		t.Error("want the last packet to be sent, and another one to be accepted")
	}
}

// A status does not overtake the numbers of messages that wait: the peer would refuse these as replayed.
func TestNumbersAscend(t *testing.T) {
	g := newGossip(t, nil)
	g.meet(2)
	g.SendTo("n2", slices.Repeat([][]byte{make([]byte, MaxMessage)}, 3*burst)...)
	var got []uint64
	for now := time.Now(); len(g.bulk) > 0; now = now.Add(statusInterval) {
		out, _ := g.due(now)
		for _, o := range out {
			h, _, _ := parsePacket(o.packet)
			got = append(got, h.Number)
		}
	}
	if len(got) != 3*burst+3 || !slices.IsSorted(got) {
		t.Errorf("%d packets have the numbers %d, want %d in ascending order", len(got), got, 3*burst+3)
	}
}

// A node that gets a summary sends the batches that the summary lacks, unless they may be on their way, and asks for
// those that it lacks itself. Answers are bounded.
func TestAnswer(t *testing.T) {
	const asks, origin = 2, 3
	bubble.Test(t, func(t *testing.T) {
		g := newGossip(t, nil)
		g.meet(asks)
		g.meet(origin)
		numbers := uint64(0)
		receive := func(from uint64, e entry) {
			numbers++
			g.receive(packetOf(header{kindNews, from, me, numbers, 0, 0}, e), time.Now())
		}
		for number := range uint64(5) {
			receive(origin, entry{origin, number + 1, 0, packed(fmt.Append(nil, number+1))})
		}
		answer := func(s entry) (got []string) {
			receive(asks, s)
			for _, o := range g.out {
				h, entries, err := parsePacket(o.packet)
				if err != nil || h.To != asks {
					t.Errorf("an answer to %d, %v", h.To, err)
				}
				for _, e := range entries {
					what := fmt.Sprintf("%d of %d", e.number, e.run)
					if h.Kind == kindAsk {
						what = "what is after " + what
					}
					got = append(got, what)
				}
			}
			g.out = nil
			return got
		}
		lacks := entry{run: origin, number: 4, word: 0b0101}
		if got := answer(lacks); got != nil {
			t.Errorf("%q are sent although they may be on their way", got)
		}
		time.Sleep(onTheWay)
		for _, test := range []struct {
			name string
			has  entry
			want []string
		}{
			{"two before the last, and later ones", lacks, []string{"1 of 3", "3 of 3", "5 of 3"}},
			{"nothing", entry{run: origin, number: 5, word: 1<<5 - 1}, nil},
			{"those that are too far behind", entry{run: origin, number: 5 + 64, word: 1}, []string{"what is after 5 of 3"}},
			{"those of this node, which has none", entry{run: me}, nil},
			{"those of a stranger", entry{run: 9}, nil},
		} {
			if d := cmp.Diff(test.want, answer(test.has)); d != "" {
				t.Errorf("a node that lacks %s is sent (-want +got):\n%s", test.name, d)
			}
		}
		time.Sleep(roundPause)
		g.due(time.Now())
		for range maxAnswers + 3 {
			receive(asks, entry{run: origin})
		}
		if got := len(g.out); got != maxAnswers {
			t.Errorf("%d packets answer, want %d", got, maxAnswers)
		}
		time.Sleep(keepBatches + time.Second)
		g.due(time.Now())
		if len(g.kept) > 0 {
			t.Error("old batches are kept")
		}
	})
}
