package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/ring"
)

// A front sends requests to the nodes of a PoP that are up.
type front struct {
	nodes []string
	down  []atomic.Bool
	http  *http.Client
}

func newFront(p pop) *front { return &front{p.nodes, make([]atomic.Bool, len(p.nodes)), newClient()} }

// ask sends a request of a client to the nth node, or to the next one that answers.
func (f *front) ask(n int, client string) (status int) {
	for i := range f.nodes {
		if to := (n + i) % len(f.nodes); !f.down[to].Load() {
			if status = get(f.http, f.nodes[to], client); status != 0 {
				return status
			}
		}
	}
	return 0
}

// A scene is the traffic around an event. begin is the start of a window of length period.
type scene struct {
	*front
	threshold  int
	period     time.Duration
	begin, end time.Time
}

// newScene returns a scene whose first whole window begins at least lead from now.
func newScene(p pop, threshold int, period, lead time.Duration, windows int) *scene {
	begin := time.Now().Add(lead).Truncate(period).Add(period)
	return &scene{newFront(p), threshold, period, begin, begin.Add(time.Duration(windows) * period)}
}

// An attack is a client that sends requests at a rate, to the nodes in turn.
type attack struct {
	client string
	rate   float64
	from   time.Duration // since the beginning of the scene
}

// run runs attacks alongside innocent clients. The result is that of the attack that got the most requests through in one window.
func (s *scene) run(innocents int, attacks ...attack) (r run) {
	defer s.http.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range innocents {
		wg.Go(func() {
			asked, refused, unanswered := s.innocent(i)
			mu.Lock()
			defer mu.Unlock()
			r.innocents, r.innocent, r.unanswered = r.innocents+asked, r.innocent+refused, r.unanswered+unanswered
		})
	}
	for _, a := range attacks {
		wg.Go(func() {
			sent, passed, unanswered := s.attack(a)
			mu.Lock()
			defer mu.Unlock()
			r.unanswered += unanswered
			all := 0
			for _, n := range passed {
				all += n
			}
			for window, n := range passed {
				if n > r.passed {
					r.passed, r.sent, r.all = n, sent[window], all
				}
			}
		})
	}
	wg.Wait()
	return r
}

// attack runs a, and returns how many requests were sent and passed, by window.
func (s *scene) attack(a attack) (sent, passed map[int64]int, unanswered int) {
	sent, passed = map[int64]int{}, map[int64]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	defer wg.Wait()
	from := s.begin.Add(a.from)
	for i := 0; ; i++ {
		due := from.Add(time.Duration(float64(i) * float64(time.Second) / a.rate))
		if !due.Before(s.end) {
			break
		}
		time.Sleep(time.Until(due))
		wg.Go(func() {
			window := time.Now().UnixNano() / int64(s.period)
			status := s.ask(i, a.client)
			mu.Lock()
			defer mu.Unlock()
			sent[window]++
			switch status {
			case 200:
				passed[window]++
			case 429:
			default:
				unanswered++
			}
		})
	}
	wg.Wait()
	return sent, passed, unanswered
}

// innocent sends half of the threshold at once, then nothing for longer than a period, and so on.
func (s *scene) innocent(i int) (asked, refused, unanswered int) {
	client := fmt.Sprintf("10.2.%d.%d", i/256, i%256)
	time.Sleep(rand.N(s.period))
	for time.Now().Before(s.end) {
		for range s.threshold / 2 {
			asked++
			switch s.ask(rand.N(len(s.nodes)), client) {
			case 200:
			case 429:
				refused++
			default:
				unanswered++
			}
		}
		time.Sleep(s.period + 50*time.Millisecond)
	}
	return asked, refused, unanswered
}

// clientsOf returns a function that returns the next client whose key is on the first shard.
func clientsOf(shards []*shard, rule string) func() string {
	all, of := map[string]*shard{}, keysOf(rule, "all")
	for _, s := range shards {
		all[s.addr] = s
	}
	var owners ring.Ring[*shard]
	harness.Check(owners.Set(all))
	addr := netip.MustParseAddr("198.18.0.0")
	return func() string {
		for {
			addr = addr.Next()
			if owners.Owner(of(addr)) == shards[0] {
				return addr.String()
			}
		}
	}
}

// during runs do until the returned function is called.
func during(do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { do(ctx) })
	return func() { cancel(); wg.Wait() }
}
