package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

// options returns the options of a Watch of a node without peers, which sets the ring with set.
func options(set func([]async.Shard, ...string) error) Options {
	return Options{
		Set: set, Votes: func(time.Time) [][]uint64 { return nil }, Problem: func(string) {}, Unfit: func(string) {}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// The votes of a node that considers very many shards down still fit into a packet.
func TestManyShardsDown(t *testing.T) {
	o := options(func([]async.Shard, ...string) error { return nil })
	for i := range 200 {
		o.Addrs = append(o.Addrs, Memcached(fmt.Sprintf("10.0.0.%d:11211", i)))
	}
	o.Client.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
	o.Client.Failures = 1
	w := New(o)
	for _, s := range w.all() {
		_ = s.Probe() // it fails
	}
	if got := len(w.Against()); got != MaxVotes {
		t.Errorf("%d votes, want %d", got, MaxVotes)
	}
	if states := w.States(); !states[0].Down || !states[0].InRing {
		t.Errorf("a shard that is down and in the ring is shown as %+v", states[0])
	}
}

// A node without requests notices within seconds that its only shard is down, and that it is back, and logs both once
// in a minute.
// It does not claim that a shard answers before it has.
func TestIdleShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := shard.New(shard.Options{})
		var down atomic.Bool
		var log bytes.Buffer
		o := options(func([]async.Shard, ...string) error { return nil })
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Addrs = []Address{Memcached("10.0.0.1:11211")}
		o.ClientsItem, o.Clients = counter.Item([]byte("0123456789abcdef")), func([]byte) []byte { return nil }
		o.Client.Dial = func(context.Context, string, string) (net.Conn, error) {
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			near, far := net.Pipe()
			go server.ServeConn(t.Context(), far)
			return near, nil
		}
		w := New(o)
		if s := w.States()[0]; s.Answers || s.Down {
			t.Errorf("a shard that nothing has asked yet is shown as %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		synctest.Wait()
		if !w.States()[0].Answers {
			t.Error("the shard was not asked when the node started")
		}
		for _, is := range []bool{false, true, false, true, false} {
			down.Store(is)
			_ = w.Close() // a killed server closes its connections
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if got := w.States()[0]; got.Down != is || got.Answers == is {
				t.Errorf("six seconds after down became %t: %+v", is, got)
			}
		}
		want := `^\S+ level=WARN msg="shard is down; [^"]*" shard=10.0.0.1:11211 err="[^"]*connection refused"` + "\n.*" +
			`level=INFO msg="shard answers again" shard=10.0.0.1:11211` + "\n$"
		if !regexp.MustCompile(want).MatchString(log.String()) {
			t.Errorf("log:\n%s\nwant a match of %s", &log, want)
		}
		cancel()
		_ = w.Close()
	})
}

// Statuses are received and sent while the ring changes: gossip does not wait.
func TestStatusesWhileTheRingChanges(t *testing.T) {
	var w *Watch
	changes := 0
	set := func([]async.Shard, ...string) error {
		if changes++; w == nil {
			return nil // called by New
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.MergeDrains(w.AppendDrains(nil, 1000))
			w.Against()
			w.States()
		}()
		<-done // blocks forever if a status waits until the ring has changed
		return nil
	}
	o := options(set)
	o.Addrs = []Address{Memcached("10.0.0.1:11211")}
	w = New(o)
	if err := w.Drain("10.0.0.1:11211", true); err != nil {
		t.Fatal(err)
	}
	if states := w.States(); !states[0].Drained || states[0].InRing {
		t.Errorf("a shard that is drained is shown as %+v", states[0])
	}
	if changes != 2 {
		t.Errorf("the ring changed %d times, want 2", changes)
	}
}
