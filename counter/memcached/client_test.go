package memcached_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
)

// embedded starts a shard in the process and returns its address.
func embedded(t testing.TB) string {
	t.Helper()
	s := shard.New(shard.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ctx, ln) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return ln.Addr().String()
}

// onBoth runs test against the embedded shard and against the real memcached.
func onBoth(t *testing.T, test func(t *testing.T, s *memcached.Client)) {
	for name, start := range map[string]func(testing.TB) string{
		"embedded":  embedded,
		"memcached": func(t testing.TB) string { return harness.StartMemcached(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			s := memcached.New(start(t), wire.Options{Timeout: 10 * time.Second})
			defer s.Close()
			test(t, s)
		})
	}
}

func count(t testing.TB, s *memcached.Client, key string, delta, want uint64) {
	t.Helper()
	if got, err := one(s, key, delta, 60); err != nil || got != want {
		t.Errorf("Count(%q, %d) = %d, %v, want %d", key, delta, got, err, want)
	}
}

func TestCount(t *testing.T) {
	onBoth(t, func(t *testing.T, s *memcached.Client) {
		count(t, s, "a", 3, 3)
		count(t, s, "a", 4, 7)
		count(t, s, "b", 1<<48, 1<<48)
		count(t, s, "b", 1, 1<<48+1)
		values := harness.Values(t, s, named("a"), named("missing"), named("b"))
		want := map[string][]byte{named("a"): []byte("7                   "), named("b"): []byte("281474976710657     ")}
		if diff := cmp.Diff(want, values); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	})
}

// INCR fails on a new counter and ADD on an existing one: a race must not lose a count.
func TestCountersAreMadeOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *memcached.Client) {
		const writers, keys = 32, 200
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for k := range keys {
					if _, err := one(s, fmt.Sprint("fresh", k), 1, 60); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for k := range keys {
			count(t, s, fmt.Sprint("fresh", k), 1, writers+1)
		}
	})
}

func TestUpdate(t *testing.T) {
	onBoth(t, func(t *testing.T, s *memcached.Client) {
		record := named("r")
		appendTo := func(text string) func([]byte) ([]byte, int32) {
			return func(old []byte) ([]byte, int32) { return append(old, text...), 60 }
		}
		for _, text := range []string{"one", " two"} {
			if err := s.Update(counter.Item([]byte(record)), appendTo(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Update(counter.Item([]byte(record)), func([]byte) ([]byte, int32) { return nil, 0 }); err != nil {
			t.Fatal(err)
		}
		if got := string(harness.Values(t, s, record)[record]); got != "one two" {
			t.Errorf("after two updates and one that changes nothing: %q", got)
		}

		// Another writer intervenes between read and write, once, then always.
		tries := 0
		interfere := func(times int) func([]byte) ([]byte, int32) {
			return func(old []byte) ([]byte, int32) {
				if tries++; tries <= times {
					if err := s.Update(counter.Item([]byte(record)), appendTo("!")); err != nil {
						t.Error(err)
					}
				}
				return append(old, " three"...), 60
			}
		}
		if err := s.Update(counter.Item([]byte(record)), interfere(1)); err != nil || tries != 2 {
			t.Errorf("Update with one concurrent writer: %v after %d tries, want success after 2", err, tries)
		}
		if got := string(harness.Values(t, s, record)[record]); got != "one two! three" {
			t.Errorf("two writers made %q", got)
		}
		tries = 0
		if err := s.Update(counter.Item([]byte(record)), interfere(99)); !errors.Is(err, counter.ErrUnknown) || tries != 3 {
			t.Errorf("Update with an eager writer: %v after %d tries, want ErrUnknown after 3", err, tries)
		}
	})
}

func TestPoisonedCounter(t *testing.T) {
	onBoth(t, func(t *testing.T, s *memcached.Client) {
		if err := s.Update(counter.Item([]byte(named("p"))), func([]byte) ([]byte, int32) { return []byte("poison"), 60 }); err != nil {
			t.Fatal(err)
		}
		if got, err := one(s, "p", 1, 60); err == nil || errors.Is(err, counter.ErrUnknown) {
			t.Errorf("counting in a value that is not a number = %d, %v, want a refusal by the shard", got, err)
		}
		count(t, s, "q", 1, 1)
	})
}

// A scripted shard answers each line with the result of answer; "" closes the connection. It skips data lines
// and commands without a reply, and does not identify its instance.
func scripted(t *testing.T, answer func(line string) string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			lines := bufio.NewReader(far)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "add ") || strings.HasPrefix(line, "cas ") {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
				}
				if strings.HasPrefix(line, "version") { // of a new connection
					if _, err := io.WriteString(far, "VERSION 1.6.18\r\n"); err != nil {
						return
					}
					continue
				}
				if strings.Contains(line, "noreply") {
					continue
				}
				reply := answer(strings.TrimSpace(line))
				if reply == "" {
					return
				}
				if _, err := io.WriteString(far, reply); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}

// A memcached that restarts while nothing is in flight costs nothing: the old connections are not used.
func TestRestart(t *testing.T) {
	m := harness.StartMemcached(t)
	s := memcached.New(m.Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				if _, err := one(s, fmt.Sprint("k", i), 1, 60); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m.Restart()
	for i := range uint64(3) {
		count(t, s, "k", 1, i+1)
	}
}

// Clients of one rule have two counters each, in the smallest chunks of memcached.
func TestMemoryOfClients(t *testing.T) {
	m := harness.StartMemcached(t, "-m", "1024")
	conn, err := net.Dial("tcp", m.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const clients = 100_000
	limit := counter.Limit{Threshold: 50, Period: 60e6, Layout: counter.Plain}
	sec, err := counter.NewSecret("a secret of many clients")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		w := bufio.NewWriterSize(conn, 1<<20)
		for i := range clients {
			tag := sec.Tag([]byte(fmt.Sprint("client ", i)))
			for window := range int64(2) {
				// The longest value that packed counts can have.
				fmt.Fprintf(w, "set %s 0 %d 20 noreply\r\n18446744073709551615\r\n", sec.CounterItem(tag, limit, window).String(), counter.TTL(limit.Period))
			}
		}
		fmt.Fprint(w, "stats slabs\r\n")
		if err := w.Flush(); err != nil {
			t.Error(err)
		}
	})
	stats := map[string]int64{}
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		var name string
		var value int64
		if _, err := fmt.Sscanf(lines.Text(), "STAT %s %d", &name, &value); err == nil {
			stats[name] = value
		}
	}
	wg.Wait()
	used := stats["1:used_chunks"] * stats["1:chunk_size"]
	t.Logf("%d items in chunks of %d bytes; memcached has allocated %d kB", stats["1:used_chunks"], stats["1:chunk_size"], stats["total_malloced"]/1e3)
	if got := stats["1:used_chunks"]; got < 2*clients {
		t.Errorf("%d items are in the smallest chunks, want %d", got, 2*clients)
	}
	if used > 220*clients || stats["total_malloced"] > 220*clients {
		t.Errorf("%d clients take %d bytes of chunks, memcached has allocated %d, want at most 220 for each", clients, used, stats["total_malloced"])
	}
}

func BenchmarkCount(b *testing.B) {
	for name, start := range map[string]func(testing.TB) string{
		"embedded":  embedded,
		"memcached": func(t testing.TB) string { return harness.StartMemcached(t).Addr },
	} {
		b.Run(name, func(b *testing.B) {
			s := memcached.New(start(b), wire.Options{Timeout: 10 * time.Second})
			defer s.Close()
			b.SetParallelism(8)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := one(s, "key", 1, 600); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// named returns a name of the length of an item.
func named(name string) string { return (name + "................")[:16] }

// one counts in a single counter, which may be new.
func one(s *memcached.Client, name string, delta uint64, ttl int32) (uint64, error) {
	var b counter.Batch
	b.Increments = append(b.Increments, counter.Increment{Item: counter.Item([]byte(named(name))), Delta: delta, TTL: ttl, Create: true})
	err := s.Exchange(&b)
	if err == nil && b.Increments[0].Outcome != counter.Done {
		err = fmt.Errorf("outcome %d", b.Increments[0].Outcome)
	}
	return b.Increments[0].Value, err
}
