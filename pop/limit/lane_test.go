package limit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// dead returns a shard that refuses. Its breaker is open once it has been asked.
func dead() *counter.Shard {
	return counter.NewShard("s:1", counter.ShardOptions{
		Failures: 1,
		Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
	})
}

// idle returns a limiter that does not run, with a dead shard whose lane has room for size
// keys. It tracks one key for each part of the tracks, and queues one for each stripe.
func idle(tb testing.TB, limits string, size int) (*Limiter, *lane) {
	tb.Helper()
	set, err := rule.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], mitigation_timeout: 1m, limits: "+limits+"}]"))
	if err != nil {
		tb.Fatal(err)
	}
	table, err := mitigation.New(mitigation.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := New(Options{
		Rules: set, Table: table, Shards: []Shard{dead()}, TrackedKeys: trackParts, Queue: 16, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	l.lanes[0].size = size
	return l, l.lanes[0]
}

// count lets n requests of a key come out of the queue.
func (l *Limiter) count(key counter.Key, n uint64) *track {
	r := l.Rules().Rules()[0]
	l.flush([]async.Item[arrival, offered]{{Key: arrival{key, time.Now().UnixMilli()}, Value: offered{rule: r, n: n}}})
	return l.track(key, r, time.Now(), nil)
}

// dropped returns how many requests are counted as lost by a cause.
func (l *Limiter) dropped(cause string) float64 { return testutil.ToFloat64(l.metrics.dropped[cause]) }

func TestLane(t *testing.T) {
	ln := newLane(dead(), 2)
	var tracks [5]track
	enter := func(i int, want bool) {
		t.Helper()
		if got := ln.enter(&tracks[i]); got != want {
			t.Errorf("enter(%d) = %t, want %t: %d are ready, %d parked", i, got, want, len(ln.ready), len(ln.parked))
		}
	}
	park := func(i int, want bool) {
		t.Helper()
		if got := ln.park(&tracks[i]); got != want {
			t.Errorf("park(%d) = %t, want %t: %d are ready, %d parked", i, got, want, len(ln.ready), len(ln.parked))
		}
	}
	take := func(i int) {
		t.Helper()
		if got, ok := ln.take(); !ok || got != &tracks[i] {
			t.Errorf("take() is not track %d, ok = %t", i, ok)
		}
	}
	enter(0, true)
	enter(1, true)
	enter(2, false) // full
	take(0)
	park(0, true)
	park(2, true)
	park(3, false) // full
	if stay := ln.unpark(); stay != 1 {
		t.Errorf("%d keys stay parked, want the one for which there is no room", stay)
	}
	take(1)
	take(0)

	_ = ln.shard.Probe() // opens the breaker
	if stay := ln.unpark(); stay != 1 || len(ln.ready) != 0 {
		t.Errorf("while the shard is down %d keys stay parked and %d are ready, want 1 and 0", stay, len(ln.ready))
	}
	enter(4, true)
	ln.close()
	take(4)
	take(2) // what was parked comes once more
	enter(0, false)
	park(0, false)
	if _, ok := ln.take(); ok || !ln.hasEnded() {
		t.Errorf("a lane that is closed and empty goes on")
	}
}

// Where its lane is full a key is held against its limits all the same, by what the node
// knows, and is sent with a later count.
func TestAFullLane(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	for _, tt := range []struct {
		name string
		meet func(*Limiter, *lane, *track)
	}{
		{"no room to wait for the shard", func(*Limiter, *lane, *track) {}},
		{"no room to park", func(l *Limiter, ln *lane, tr *track) {
			ln.size = 1
			l.dispatch(tr)
			tr, _ = ln.take()
			ln.size = 0
			l.serve(ln, tr, job{})
		}},
		{"closed while it was at work", func(l *Limiter, ln *lane, tr *track) {
			ln.size = 1
			l.dispatch(tr)
			tr, _ = ln.take()
			ln.close()
			l.serve(ln, tr, job{})
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, ln := idle(t, "[{threshold: 5, period: 1h}]", 0)
			tr := l.count(counter.Key{1}, 6)
			tt.meet(l, ln, tr)
			if _, mitigated := l.o.Table.Get(tr.key, time.Now()); !mitigated {
				t.Errorf("%s: 6 requests of 5 are not mitigated", tt.name)
			}
			if tr.busy || tr.parked {
				t.Errorf("%s: busy = %t, parked = %t, so that it is never sent again", tt.name, tr.busy, tr.parked)
			}
			if n := tr.unsentRequests(); n != 6 {
				t.Errorf("%s: %d requests are still to be sent, want 6", tt.name, n)
			}
		})
	}
}

// Every cause for which counts are lost has its number: each request once for each limit.
func TestLostCounts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	one, other := counter.Key{1}, counter.Key{1 + trackParts}
	for _, tt := range []struct {
		name  string
		lose  func(*Limiter, *lane)
		cause string
		want  float64 // of 3 requests, with two limits
	}{
		{"the key's place is taken", func(l *Limiter, _ *lane) {
			l.count(one, 3)
			l.count(other, 1)
		}, dropMemory, 6},
		{"the key's place is taken long after", func(l *Limiter, _ *lane) {
			tr := l.count(one, 3)
			time.Sleep(3 * time.Second)
			tr.advance(time.Now()) // too late for the first limit
			l.count(other, 1)
		}, dropMemory, 6},
		{"the place of a key at work is taken, which is sent no more", func(l *Limiter, ln *lane) {
			tr := l.count(one, 3)
			tr.busy = true
			l.count(other, 1)
			if n := l.dropped(dropMemory); n != 0 {
				t.Errorf("%v requests of a key at work are counted as lost", n)
			}
			time.Sleep(3 * time.Second)
			tr.advance(time.Now())
			l.release(tr)
		}, dropShard, 6},
		{"its windows have passed at a shard that is down", func(l *Limiter, ln *lane) {
			tr := l.count(one, 3)
			time.Sleep(time.Minute)
			l.serve(ln, tr, job{})
		}, dropShard, 6},
		{"its first window has passed", func(l *Limiter, ln *lane) {
			tr := l.count(one, 3)
			time.Sleep(3 * time.Second)
			l.serve(ln, tr, job{})
		}, dropShard, 3},
		{"its windows have passed when it is looked at", func(l *Limiter, _ *lane) {
			tr := l.count(one, 3)
			time.Sleep(time.Minute)
			l.evaluate(tr)
		}, dropShard, 6},
		{"the node ends", func(l *Limiter, _ *lane) {
			tr := l.count(one, 3)
			time.Sleep(3 * time.Second)
			tr.advance(time.Now())
			l.dropRest()
			l.dropRest() // each once
		}, dropShard, 6},
		{"the queue is full", func(l *Limiter, _ *lane) {
			req := rule.Request{}
			for i := range 3 + 1 {
				var d Decision
				d.add(count{l.Rules().Rules()[0], counter.Key{byte(i << 4)}}) // one stripe
				l.countArrival(&d, &req, time.Now())
			}
		}, dropQueue, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, ln := idle(t, "[{threshold: 100, period: 1s}, {threshold: 100, period: 10s}]", 0)
			time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second)))
			tt.lose(l, ln)
			for _, cause := range []string{dropQueue, dropShard, dropMemory} {
				want := 0.0
				if cause == tt.cause {
					want = tt.want
				}
				if n := l.dropped(cause); n != want {
					t.Errorf("%s: %v requests are counted as lost by %s, want %v", tt.name, n, cause, want)
				}
			}
		})
	}
}

// Keys that are to be read once more have a bound as well.
func TestLaterIsBounded(t *testing.T) {
	l := later{wake: make(chan struct{}, 1)}
	var tr track
	for range maxLater + 10 {
		l.add(&tr, at(0, 0))
	}
	if n := len(l.waits); n != maxLater {
		t.Errorf("%d keys wait, want %d", n, maxLater)
	}
	due, next := l.due(at(0, 0))
	if len(due) != maxLater || next != 0 {
		t.Errorf("%d keys are due and the next one in %v, want all of %d", len(due), next, maxLater)
	}
}

// A key that is near its threshold is sent at once; in a new window it waits again.
func TestNearEndsWithTheWindow(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		l, _ := idle(t, "[{threshold: 8, period: 10s}]", 0)
		one, neighbour := counter.Key{}, counter.Key{8: 1}
		for _, step := range []struct {
			wait     time.Duration
			requests uint64
			want     bool
		}{{0, 6, false}, {0, 1, true}, {0, 1, true}, {time.Minute, 1, false}} {
			time.Sleep(step.wait)
			if l.count(one, step.requests); l.near.has(one) != step.want {
				t.Errorf("%v later, with %d more requests: near = %t, want %t", step.wait, step.requests, !step.want, step.want)
			}
			if l.near.has(neighbour) {
				t.Error("another key is near as well")
			}
		}
	})
}
