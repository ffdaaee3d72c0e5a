package memcached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
)

// increments returns a batch that adds 1 to each of n counters whose names begin with prefix.
func increments(prefix string, n int, make bool) *counter.Batch {
	b := new(counter.Batch)
	for i := range n {
		b.Increments = append(b.Increments, counter.Increment{
			Item: counter.Item([]byte(fmt.Sprintf("%s%0*d", prefix, 16-len(prefix), i))), Delta: 1, TTL: 60, Create: make,
		})
	}
	return b
}

// A batch creates counters, counts in them, stores records and reads both, in agreement with gomemcache.
func TestBatch(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{
		"embedded":  embedded,
		"memcached": func(t testing.TB) string { return harness.StartMemcached(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			addr := start(t)
			s := memcached.New(addr, wire.Options{Timeout: 10 * time.Second})
			defer s.Close()
			reference := memcache.New(addr)
			defer reference.Close()
			const n = 3000
			b := increments("new", n, true)
			b.Increments = append(b.Increments, increments("none", 1, false).Increments...)
			record := bytes.Repeat([]byte{'\n', 0, 'x', ' '}, 21)
			for i := range 100 {
				b.Stores = append(b.Stores, counter.Store{Item: counter.Item([]byte(fmt.Sprintf("record%010d", i%50))), Value: record, TTL: 60})
			}
			if err := s.Exchange(b); err != nil {
				t.Fatal(err)
			}
			for i := range b.Increments[:n] {
				if op := b.Increments[i]; op.Outcome != counter.Done || op.Value != 1 {
					t.Fatalf("a new counter is %d, outcome %d", op.Value, op.Outcome)
				}
			}
			if got := b.Increments[n].Outcome; got != counter.Absent {
				t.Errorf("a counter that nobody has created: outcome %d, want Absent", got)
			}
			for i, op := range b.Stores {
				if want := []counter.Outcome{counter.Done, counter.Absent}[i/50]; op.Outcome != want {
					t.Fatalf("the %dth store: outcome %d, want %d", i, op.Outcome, want)
				}
			}
			if item, err := reference.Get(b.Increments[7].Item.String()); err != nil || len(item.Value) != 20 || strings.TrimRight(string(item.Value), " ") != "1" {
				t.Errorf("a new counter is stored as %q, %v, want 1 in 20 characters", item.Value, err)
			}

			again := increments("new", n, false)
			for i := range 200 { // only the first 50 exist
				again.Reads = append(again.Reads, counter.Read{Item: counter.Item([]byte(fmt.Sprintf("record%010d", i)))})
			}
			again.Reads = append(again.Reads, counter.Read{Item: b.Increments[3].Item})
			if err := s.Exchange(again); err != nil {
				t.Fatal(err)
			}
			for i := range again.Increments {
				if op := again.Increments[i]; op.Outcome != counter.Done || op.Value != 2 {
					t.Fatalf("a counter is %d, outcome %d, want 2", op.Value, op.Outcome)
				}
			}
			for i, op := range again.Reads[:200] {
				if found := op.Outcome == counter.Done && bytes.Equal(op.Value, record); found != (i < 50) || !found && op.Outcome != counter.Absent {
					t.Fatalf("the %dth record: outcome %d, %q", i, op.Outcome, op.Value)
				}
			}
			if value, ok := counter.ParseValue(again.Reads[200].Value); value != 2 || !ok {
				t.Errorf("the counter reads %d, %t, want 2", value, ok)
			}
			// Only one writer that has read a version of a record can replace it.
			var swap counter.Batch
			for range 2 {
				swap.Stores = append(swap.Stores, counter.Store{Item: again.Reads[9].Item, Value: []byte("other"), TTL: 60, CAS: again.Reads[9].CAS})
			}
			if err := s.Exchange(&swap); err != nil || swap.Stores[0].Outcome != counter.Done || swap.Stores[1].Outcome != counter.Absent {
				t.Errorf("two writes with the same version: %v, %d, %d, want the first to be done", err, swap.Stores[0].Outcome, swap.Stores[1].Outcome)
			}
			if item, err := reference.Get(again.Reads[9].Item.String()); err != nil || string(item.Value) != "other" {
				t.Errorf("the record is %q, %v", item.Value, err)
			}
		})
	}
}

// A shard that does not speak the protocol costs bounded memory and time, and increments that
// were sent are unknown.
func TestMalformedReplies(t *testing.T) {
	const version = "VERSION 1.6.18\r\n"
	for _, tt := range []struct {
		name  string
		first string // to version
		reply string // to the batch
		again bool   // repeat the reply endlessly
		want  error
		done  int // how many of 2 increments are done
	}{
		{"an empty line", version, "\n", false, counter.ErrUnknown, 0},
		{"words instead of a number", version, "many\r\n", false, counter.ErrUnknown, 0},
		{"a number that is too large", version, "18446744073709551616\r\n", false, counter.ErrUnknown, 0},
		{"a line without an end", version, strings.Repeat("1", 1<<16), true, counter.ErrUnknown, 0},
		{"a huge value", version, "1\r\n1\r\nVALUE two............. 0 4294967295 1\r\n", true, counter.ErrUnknown, 2},
		{"a value that nobody has asked for", version, "1\r\n1\r\nVALUE other........... 0 1 1\r\nx\r\nEND\r\n", false, counter.ErrUnknown, 2},
		{"a value longer than it says", version, "1\r\n1\r\nVALUE two............. 0 1 1\r\nxxxxx\r\nEND\r\n", false, counter.ErrUnknown, 2},
		{"a negative length", version, "1\r\n1\r\nVALUE two............. 0 -1 1\r\n\r\nEND\r\n", false, counter.ErrUnknown, 2},
		{"endless values", version, "1\r\n1\r\n" + strings.Repeat("VALUE two............. 0 1 1\r\nx\r\n", 99), true, counter.ErrUnknown, 2},
		{"a value line with too few fields", version, "1\r\n1\r\nVALUE two............. 0 1\r\nx\r\nEND\r\n", false, counter.ErrUnknown, 2},
		{"refused reads", version, "1\r\n1\r\nSERVER_ERROR out of memory\r\n", false, nil, 2},
		{"an early end", version, "1\r\n", false, counter.ErrUnknown, 1},
		{"an endless line in place of the version", strings.Repeat("S", 1<<17), "", false, counter.ErrNotSent, 0},
		{"another server", "-ERR unknown command 'version'\r\n", "", false, counter.ErrNotSent, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = far.Read(make([]byte, 1<<16))
				if _, err := io.WriteString(far, tt.first); err != nil {
					return
				}
				_, _ = far.Read(make([]byte, 1<<16)) // all of the batch
				for {
					if _, err := io.WriteString(far, tt.reply); err != nil || !tt.again {
						return
					}
				}
			}()
			reg := prometheus.NewPedanticRegistry()
			s := memcached.New("s:1", wire.Options{
				Timeout: 10 * time.Second, Metrics: wire.NewMetrics(reg), // longer than any reply takes
				Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil },
			})
			defer s.Close()
			b := increments("k", 2, true)
			b.Reads = append(b.Reads, counter.Read{Item: counter.Item([]byte(named("one")))}, counter.Read{Item: counter.Item([]byte(named("two")))})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := s.Exchange(b); !errors.Is(err, tt.want) {
				t.Errorf("Exchange: %v, want %v", err, tt.want)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
			done := 0
			for _, op := range b.Increments {
				switch op.Outcome {
				case counter.Done:
					done++
				case counter.Unknown:
				case counter.NotSent:
					if tt.first == version {
						t.Error("an increment that was sent is reported as not sent")
					}
				default:
					t.Errorf("outcome %d, want Done or Unknown", op.Outcome)
				}
			}
			for _, op := range b.Reads {
				if tt.want == nil && op.Outcome != counter.Refused {
					t.Errorf("a refused read has outcome %d, want Refused", op.Outcome)
				}
			}
			if done != tt.done {
				t.Errorf("%d increments are done, want %d", done, tt.done)
			}
		})
	}
}

// An unexpected answer closes the connection, so that it is not mistaken for the next answer.
func TestTooManyReplies(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var dials atomic.Int64
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			go func() {
				defer conn.Close()
				buf := make([]byte, 1<<12)
				for n := 0; ; n++ {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					answer := "7\r\n8\r\n"
					if n == 0 {
						answer = "VERSION 1.6.18\r\n"
					}
					_, _ = io.WriteString(conn, answer)
				}
			}()
		}
	}()
	s := memcached.New(ln.Addr().String(), wire.Options{Timeout: 5 * time.Second})
	defer s.Close()
	for i := range 5 {
		b := increments("k", 1, false)
		if err := s.Exchange(b); err != nil || b.Increments[0].Value != 7 {
			t.Fatalf("the %dth answer is %d, %v, want 7", i, b.Increments[0].Value, err)
		}
	}
	if n := dials.Load(); n != 5 {
		t.Errorf("%d connections for 5 batches that get too many replies, want 5", n)
	}
}

// A full memcached that does not evict refuses new counters, and still counts in existing ones: their values do
// not grow in length.
func TestFullMemcached(t *testing.T) {
	m := harness.StartMemcached(t, "-M", "-m", "8")
	s := memcached.New(m.Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	known := increments("known", 10, true)
	if err := s.Exchange(known); err != nil {
		t.Fatal(err)
	}
	full := false
	for round := 0; round < 100 && !full; round++ {
		b := increments(fmt.Sprintf("r%03d", round), 5000, true)
		if err := s.Exchange(b); err != nil {
			t.Fatal(err)
		}
		for _, op := range b.Increments {
			full = full || op.Outcome == counter.Absent || op.Outcome == counter.Refused
		}
	}
	if !full {
		t.Fatal("memcached is not full")
	}
	for i := range known.Increments {
		op := &known.Increments[i]
		op.Create, op.Delta = false, 1<<63
	}
	if err := s.Exchange(known); err != nil {
		t.Fatal(err)
	}
	for _, op := range known.Increments {
		if op.Outcome != counter.Done || op.Value != 1<<63+1 {
			t.Errorf("a known counter is %d, outcome %d", op.Value, op.Outcome)
		}
	}
}

// A shard that answers slowly each time counts as down after 5 s, and as up with the first
// prompt answer.
func TestSlowShardCountsAsDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		delay := 30 * time.Millisecond
		s := memcached.New("s:1", wire.Options{Timeout: 50 * time.Millisecond, Dial: scripted(t, func(string) string {
			time.Sleep(delay)
			return "1\r\n"
		})})
		defer s.Close()
		if _, err := one(s, "k", 1, 60); err != nil { // connects
			t.Fatal(err)
		}
		start := time.Now()
		for range 1000 {
			if _, err := one(s, "k", 1, 60); s.Down() {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("the shard is down after %v", took)
		}
		for range 10 { // probes are equally slow
			time.Sleep(300 * time.Millisecond)
			_, _ = one(s, "k", 1, 60)
		}
		if !s.Down() {
			t.Error("the shard is up although it is as slow as before")
		}
		delay = 20 * time.Millisecond
		time.Sleep(300 * time.Millisecond)
		if _, err := one(s, "k", 1, 60); err != nil || s.Down() {
			t.Errorf("the shard is down after a prompt answer: %v", err)
		}
	})
}

// Random replies never break the invariants of an exchange.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("1\r\n2\r\nEND\r\n"))
	f.Add([]byte("1\r\nNOT_FOUND\r\nVALUE one............. 0 3 9\r\nabc\r\nEND\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(far, "VERSION 1.6.18\r\n")
			_, _ = far.Read(make([]byte, 1<<16)) // all of the batch
			_, _ = far.Write(reply)
			far.Close()
		}()
		s := memcached.New("s:1", wire.Options{
			Timeout: time.Minute, // the shard closes the connection earlier
			Dial:    func(context.Context, string, string) (net.Conn, error) { return near, nil },
		})
		defer s.Close()
		b := increments("k", 2, rand.IntN(2) == 0)
		b.Reads = append(b.Reads, counter.Read{Item: counter.Item([]byte(named("one")))})
		err := s.Exchange(b)
		for _, op := range b.Increments {
			if op.Outcome == counter.NotSent {
				t.Errorf("an increment that was sent is reported as not sent")
			}
			if err == nil && op.Outcome == counter.Unknown {
				t.Error("an increment is unknown after a successful exchange")
			}
		}
		if op := b.Reads[0]; len(op.Value) > 128 {
			t.Errorf("a value of %d bytes is kept", len(op.Value))
		}
	})
}

// A batch of known counters allocates nothing for each.
func TestExchangeAllocatesNothingPerKey(t *testing.T) {
	s := memcached.New(harness.StartMemcached(t).Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	b := increments("alloc", 1000, true)
	exchange := func() {
		if err := s.Exchange(b); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	if n := testing.AllocsPerRun(20, exchange); n > 50 {
		t.Errorf("a batch of 1000 allocates %v times", n)
	}
	if diff := cmp.Diff(uint64(22), b.Increments[0].Value); diff != "" {
		t.Errorf("the value (-want +got):\n%s", diff)
	}
}
