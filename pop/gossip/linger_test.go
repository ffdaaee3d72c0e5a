package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/bubble"
)

// newsOf returns a message to all, in the batch of a run with a number.
func newsOf(run, number uint64, text string) entry {
	return entry{run, number, 0, packed([]byte(text))}
}

// A peer that is wrongly declared dead misses nothing: earlier and later messages are still passed on to it, and
// its own are accepted. A node that has left or stays dead is sent nothing, and what was for a former run goes to
// the next.
func TestDeclaredDead(t *testing.T) {
	for _, test := range []struct {
		name string
		then func(g *Gossip) // called after n2, which is run 2, was declared dead
		want []string        // messages and receivers within two seconds
	}{
		{"comes back", func(g *Gossip) { time.Sleep(linger / 2); g.joined(nodeAt(2)) }, []string{"2 after", "2 before", "2 meanwhile"}},
		{"is not heard of", func(*Gossip) {}, []string{"2 after", "2 before", "2 meanwhile"}},
		{"stays dead", func(*Gossip) { time.Sleep(linger) }, nil},
		{"comes back and leaves", func(g *Gossip) { g.joined(nodeAt(2)); g.leaves(2) }, nil},
		{"begins another run", func(g *Gossip) { g.joined(peerAt("n2", 3)) }, []string{"3 after", "3 before", "3 from the dead", "3 meanwhile"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				received := 0
				g := newGossip(t, nil)
				g.record(func(string, string, []byte, time.Duration) { received++ })
				g.joined(nodeAt(2))
				g.Send([]byte("before"))
				g.due(time.Now()) // lost
				g.dies(2)
				if got := len(g.Peers()); got > 0 {
					t.Errorf("%d peers, want none", got)
				}
				g.Send([]byte("meanwhile"))
				g.due(time.Now()) // lost
				g.receive(packetOf(header{kindNews, 2, me, 1, 0, 0}, newsOf(2, 1, "from the dead")), time.Now())
				if received != 1 {
					t.Error("the peer that was declared dead is not heard")
				}
				test.then(g)
				g.Send([]byte("after"))
				var got []string
				for range 200 {
					out, _ := g.due(time.Now())
					for _, o := range out {
						h, entries, err := parsePacket(o.packet)
						if err != nil || h.Kind != kindNews {
							continue
						}
						for _, e := range entries {
							all, _ := messages(e.bytes)
							for _, message := range all {
								got = append(got, fmt.Sprintf("%d %s", h.To, message))
							}
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				slices.Sort(got)
				if d := cmp.Diff(test.want, slices.Compact(got)); d != "" {
					t.Errorf("sent (-want +got):\n%s", d)
				}
			})
		})
	}
}

// After a partition, a node with the same run sends and receives as before: messages that were received before
// the partition are not received again.
func TestReplayAfterAPartition(t *testing.T) {
	for _, end := range []func(*Gossip, uint32){(*Gossip).dies, (*Gossip).leaves} {
		bubble.Test(t, func(t *testing.T) {
			var received []string
			g := newGossip(t, nil)
			g.record(func(_, _ string, content []byte, _ time.Duration) { received = append(received, string(content)) })
			packet := func(kind byte, number uint64, e entry) []byte {
				return packetOf(header{kind, 2, me, number, time.Now().UnixMicro(), 0}, e)
			}
			old := packet(kindNews, 1, newsOf(2, 1, "old"))
			status := packet(kindStatus, 2, entry{2, 1, 1, []byte("status")})
			g.joined(nodeAt(2))
			g.receive(old, time.Now())
			g.receive(status, time.Now())
			end(g, 2)
			time.Sleep(linger)
			g.due(time.Now()) // the link has ended
			g.receive(old, time.Now())
			g.joined(nodeAt(2))
			g.receive(old, time.Now())
			g.receive(status, time.Now())
			g.receive(packet(kindNews, 3, newsOf(2, 2, "new")), time.Now())
			if d := cmp.Diff([]string{"old", "status", "new"}, received); d != "" {
				t.Errorf("received (-want +got):\n%s", d)
			}
		})
	}
}
