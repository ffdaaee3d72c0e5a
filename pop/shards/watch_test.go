package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
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

// A ring that could not be set is set with the next votes.
func TestFailedChangeIsRepeated(t *testing.T) {
	var outs [][]string
	fails := false
	o := options(func(_ []async.Shard, out ...string) error {
		if outs = append(outs, out); fails {
			return errors.New("no")
		}
		return nil
	})
	o.Addrs = []Address{Memcached("10.0.0.1:11211"), Memcached("10.0.0.2:11211")}
	o.Client.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
	w := New(o)
	fails = true
	if err := w.Drain("10.0.0.1:11211", true); err != nil {
		t.Fatal(err)
	}
	if !w.States()[0].InRing {
		t.Error("a shard that could not be taken out of the ring is shown as out of it")
	}
	fails = false
	w.countVotes()
	if got := fmt.Sprint(outs); got != "[[] [10.0.0.1:11211] [10.0.0.1:11211]]" || w.States()[0].InRing {
		t.Errorf("the ring was set without %s", got)
	}
}

// A server that answers, but not like memcached, is reported as such, not as one that does not answer. Its breaker is
// shown as it is.
func TestUnfitShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		unfit := ""
		o := options(func([]async.Shard, ...string) error { return nil })
		o.Logger, o.Unfit = slog.New(slog.NewTextHandler(&log, nil)), func(text string) { unfit = text }
		o.Addrs, o.Client.Failures = []Address{Memcached("10.0.0.1:11211")}, 1
		o.Client.Dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = far.Read(make([]byte, 100))
				_, _ = far.Write([]byte("garbage\r\n"))
			}()
			return near, nil
		}
		w := New(o)
		w.countVotes()
		if w.States()[0].Breaker != "open" || !strings.Contains(unfit, "cannot be used") || log.Len() > 0 {
			t.Errorf("%+v, %q; log:\n%s", w.States()[0], unfit, &log)
		}
		if time.Sleep(time.Second); w.States()[0].Breaker != "half_open" {
			t.Errorf("a second later: %+v", w.States()[0])
		}
	})
}

// The shards of a PoP are of one kind.
func TestAddressesOfSeveralKinds(t *testing.T) {
	for _, texts := range [][]string{{"h:11211", "redis://h"}, {"redis://h", "memcached://h:11211"}} {
		if _, err := ParseAddresses(texts); err == nil || !strings.Contains(err.Error(), "one kind") {
			t.Errorf("%q: %v", texts, err)
		}
	}
}
