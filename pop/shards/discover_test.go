package shards

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop/gossip"
)

// A fakeGossip has the peers that a test sets.
type fakeGossip struct {
	watch *Watch

	mu sync.Mutex
	at map[int]bool // the last bytes of the peers' addresses
}

func (g *fakeGossip) Peers() (all []gossip.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for of, is := range g.at {
		if is {
			all = append(all, gossip.Peer{
				Name: fmt.Sprint("n", of), Addr: fmt.Sprintf("10.0.0.%d:7946", of),
				Meta: Meta(11211),
			})
		}
	}
	return all
}

// flip toggles the presence of peers.
func (g *fakeGossip) flip(peers ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, of := range peers {
		g.at[of] = !g.at[of]
	}
}

// The ring follows peers that are stable, whatever others do meanwhile, and rarely changes.
func TestDiscovery(t *testing.T) {
	const ms = time.Millisecond
	flap := func(g *fakeGossip, of int) { // for six seconds
		for range 20 {
			time.Sleep(300 * ms)
			g.flip(of)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(g *fakeGossip) // called before a second is over, when 1, 2 and 3 are in the ring
		want []string            // times at which the ring changed, and the shards in it then
	}{
		{"nothing", func(*fakeGossip) {}, nil},
		{"a node joins", func(g *fakeGossip) { g.flip(4) }, []string{"1.5s 1 2 3 4"}},
		{"a node leaves", func(g *fakeGossip) { g.flip(3) }, []string{"1.5s 1 2"}},
		{"a node restarts", func(g *fakeGossip) { g.flip(3); time.Sleep(499 * ms); g.flip(3) }, nil},
		{"a node restarts elsewhere", func(g *fakeGossip) { g.flip(3); time.Sleep(300 * ms); g.flip(4) }, []string{"1.8s 1 2 4"}},
		{"a node flaps while another joins", func(g *fakeGossip) {
			go flap(g, 3)
			time.Sleep(1050 * ms)
			g.flip(4)
		}, []string{"2.8s 1 2 3 4"}},
		{"a node that was never in the ring flaps while another leaves", func(g *fakeGossip) {
			go flap(g, 4)
			time.Sleep(1050 * ms)
			g.flip(3)
		}, []string{"2.8s 1 2"}},
		{"a node flaps and stays", func(g *fakeGossip) { flap(g, 4); time.Sleep(300 * ms); g.flip(4) }, []string{"7.8s 1 2 3 4"}},
		{"many nodes join", func(g *fakeGossip) {
			for of := range 10 {
				time.Sleep(100 * ms)
				g.flip(4 + of)
			}
		}, []string{"2.1s 1 2 3 4 5 6 7 8 9", "2.5s 1 10 11 12 13 2 3 4 5 6 7 8 9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []string
				g := &fakeGossip{at: map[int]bool{2: true, 3: true}}
				o := options(func(shards []async.Shard, _ ...string) error {
					var ring []string
					for _, s := range shards {
						ring = append(ring, strings.TrimSuffix(strings.TrimPrefix(s.Addr(), "10.0.0."), ":11211"))
					}
					slices.Sort(ring)
					got = append(got, fmt.Sprint(time.Since(start), " ", strings.Join(ring, " ")))
					return nil
				})
				o.Peers = g.Peers
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server, pipe := shard.New(shard.Options{}), shard.NewPipe()
				go server.Serve(ctx, pipe)
				o.Client.Dial, o.Own = pipe.Dial, pipe.Dial
				g.watch = New(o)
				g.watch.Discover("10.0.0.1:7946", 11211, false)
				go g.watch.Run(ctx)
				time.Sleep(time.Second - ms) // just before the node looks
				tt.do(g)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if diff := cmp.Diff(append([]string{"0s 1 2 3"}, tt.want...), got); diff != "" {
					t.Errorf("the ring (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The shard of a node that joins others is in the ring when they have added it, or alone if there is nobody.
func TestOwnShardWaitsForPeers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := sightings{}
	for _, at := range []struct {
		after time.Duration
		there []string
		want  string
	}{
		{0, []string{"own"}, "[]"}, {100 * time.Millisecond, []string{"own", "a", "b"}, "[a b]"},
		{1099 * time.Millisecond, []string{"own", "a", "b"}, "[a b]"}, {1100 * time.Millisecond, []string{"own", "a", "b"}, "[a b own]"},
	} {
		if ring := s.see(at.there, "own", now.Add(at.after)); fmt.Sprint(ring) != at.want {
			t.Errorf("after %v the ring is %v, want %s", at.after, ring, at.want)
		}
	}
	s = sightings{}
	s.see([]string{"own"}, "own", now)
	if ring := s.see([]string{"own"}, "own", now.Add(2*discoverPause)); fmt.Sprint(ring) != "[own]" {
		t.Errorf("the ring of a node without peers is %v", ring)
	}
}

// A shard that was seen and has left the ring is forgotten.
func TestSightingsAreForgotten(t *testing.T) {
	s, now := sightings{}, time.Unix(1_800_000_000, 0)
	s.see([]string{"a", "b"}, "", now)
	s.see([]string{"a"}, "", now)
	s.see([]string{"a"}, "", now.Add(discoverPause))
	if s["a"] == nil || len(s) != 1 {
		t.Errorf("%d shards are remembered, want that which stayed", len(s))
	}
}

// The clients, the connections, the series and the failures of shards that have left are forgotten. Nodes without a shard
// have none.
func TestClientsAreForgotten(t *testing.T) {
	meta := Meta(11211)
	o := options(func([]async.Shard, ...string) error { return nil })
	o.Peers = func() []gossip.Peer {
		return []gossip.Peer{{Addr: "10.0.0.2:7946", Meta: meta}, {Addr: "10.0.0.3:7946", Meta: []byte{metaShard + 1, 1, 2}}}
	}
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	server, near := shard.New(shard.Options{}), net.Conn(nil)
	o.Client.Dial = func(context.Context, string, string) (net.Conn, error) {
		var far net.Conn
		near, far = net.Pipe()
		go server.ServeConn(context.Background(), far)
		return near, nil
	}
	w := New(o)
	series := func() int {
		n, err := testutil.GatherAndCount(registry, "edge_shard_breaker_open")
		if err != nil {
			t.Error(err)
		}
		return n
	}
	w.Discover("10.0.0.1:7946", 11211, false)
	if err := w.known["10.0.0.2:11211"].Probe(); err != nil || len(w.known) != 2 || series() != 2 {
		t.Fatalf("%v; %d clients with %d series, want 2", err, len(w.known), series())
	}
	meta = nil
	now := time.Now()
	w.look(now)
	w.look(now.Add(discoverPause))
	if len(w.known) != 1 || len(w.failed) != 1 || series() != 1 {
		t.Errorf("%d clients, the failures of %d and the series of %d are kept, want 1 each", len(w.known), len(w.failed), series())
	}
	if near.SetDeadline(now) == nil {
		t.Error("the connection to the shard that has left is still open")
	}
}
