package counter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/shard/memcachedtest"
)

// embedded starts a shard in the process and returns its address.
func embedded(t testing.TB) string {
	t.Helper()
	s, err := shard.New(shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
func onBoth(t *testing.T, test func(t *testing.T, s *counter.Shard)) {
	for name, start := range map[string]func(testing.TB) string{
		"embedded":  embedded,
		"memcached": func(t testing.TB) string { return memcachedtest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			s := counter.NewShard(start(t), counter.ShardOptions{Timeout: 10 * time.Second, Connections: 64})
			defer s.Close()
			test(t, s)
		})
	}
}

func count(t testing.TB, s *counter.Shard, key string, delta, want uint64) {
	t.Helper()
	if got, err := s.Count(key, delta, 60); err != nil || got != want {
		t.Errorf("Count(%q, %d) = %d, %v, want %d", key, delta, got, err, want)
	}
}

func TestCount(t *testing.T) {
	onBoth(t, func(t *testing.T, s *counter.Shard) {
		count(t, s, "a", 3, 3)
		count(t, s, "a", 4, 7)
		count(t, s, "b", 1<<48, 1<<48)
		count(t, s, "b", 1, 1<<48+1)
		values, err := s.Numbers("a", "missing", "b")
		want := map[string][]byte{"a": []byte("7"), "b": []byte("281474976710657")}
		if diff := cmp.Diff(want, values); diff != "" || err != nil {
			t.Errorf("Numbers: %v (-want +got):\n%s", err, diff)
		}
	})
}

// INCR fails on a new counter and ADD on an old one: whoever comes between must not cost a
// count.
func TestCountersAreMadeOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *counter.Shard) {
		const writers, keys = 32, 200
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for k := range keys {
					if _, err := s.Count(fmt.Sprint("fresh", k), 1, 60); err != nil {
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
	onBoth(t, func(t *testing.T, s *counter.Shard) {
		appendTo := func(text string) func([]byte) ([]byte, int32) {
			return func(old []byte) ([]byte, int32) { return append(old, text...), 60 }
		}
		for _, text := range []string{"one", " two"} {
			if err := s.Update("r", appendTo(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Update("r", func([]byte) ([]byte, int32) { return nil, 0 }); err != nil {
			t.Fatal(err)
		}
		values, err := s.Numbers("r")
		if err != nil || string(values["r"]) != "one two" {
			t.Errorf("after two updates and one that changes nothing: %q, %v", values["r"], err)
		}

		// Another writer comes between read and write, once, then always.
		tries := 0
		interfere := func(times int) func([]byte) ([]byte, int32) {
			return func(old []byte) ([]byte, int32) {
				if tries++; tries <= times {
					if err := s.Update("r", appendTo("!")); err != nil {
						t.Error(err)
					}
				}
				return append(old, " three"...), 60
			}
		}
		if err := s.Update("r", interfere(1)); err != nil || tries != 2 {
			t.Errorf("Update beside one other writer: %v after %d tries, want success after 2", err, tries)
		}
		values, _ = s.Numbers("r")
		if got := string(values["r"]); got != "one two! three" {
			t.Errorf("two writers made %q", got)
		}
		// What was read is gone when it is to be replaced.
		tries = 0
		if err := s.Update("r", func(old []byte) ([]byte, int32) {
			if tries++; tries == 1 {
				if err := s.Delete("r"); err != nil {
					t.Error(err)
				}
			}
			return append(old, "four"...), 60
		}); err != nil || tries != 2 {
			t.Errorf("Update of what is deleted: %v after %d tries, want success after 2", err, tries)
		}
		values, _ = s.Numbers("r")
		if got := string(values["r"]); got != "four" {
			t.Errorf("after a deletion the update made %q", got)
		}
		tries = 0
		if err := s.Update("r", interfere(99)); !errors.Is(err, counter.ErrUnknown) || tries != 3 {
			t.Errorf("Update beside an eager writer: %v after %d tries, want ErrUnknown after 3", err, tries)
		}
	})
}

// A number that has become shorter is padded.
func TestDelete(t *testing.T) {
	onBoth(t, func(t *testing.T, s *counter.Shard) {
		count(t, s, "one", 5, 5)
		count(t, s, "two", 7, 7)
		if err := s.Delete("one", "missing", "two"); err != nil {
			t.Error(err)
		}
		count(t, s, "one", 1, 1)
		count(t, s, "two", 1, 1)
	})
	s := counter.NewShard("nowhere:1", counter.ShardOptions{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }})
	if err := s.Delete("one"); !errors.Is(err, counter.ErrNotSent) {
		t.Errorf("Delete at no shard: %v, want %v", err, counter.ErrNotSent)
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "42": 42, "9                   ": 9, "18446744073709551615": 1<<64 - 1} {
		if got, err := counter.ParseNumber([]byte(text)); err != nil || got != want {
			t.Errorf("ParseNumber(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "-1", "1 2", "0x1", "18446744073709551616", "poison"} {
		if got, err := counter.ParseNumber([]byte(text)); err == nil {
			t.Errorf("ParseNumber(%q) = %d, want an error", text, got)
		}
	}
}

func TestPoisonedCounter(t *testing.T) {
	onBoth(t, func(t *testing.T, s *counter.Shard) {
		if err := s.Update("p", func([]byte) ([]byte, int32) { return []byte("poison"), 60 }); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Count("p", 1, 60); !errors.Is(err, counter.ErrUnknown) {
			t.Errorf("Count of what is no number = %d, %v, want ErrUnknown", got, err)
		}
		count(t, s, "q", 1, 1)
	})
}

// A scripted shard answers each line it reads with what answer returns; "" closes the
// connection. Lines of data are skipped.
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
				if strings.HasPrefix(line, "add ") {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
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

// What may have been counted is never sent again, and what was not is told from it.
func TestOutcomes(t *testing.T) {
	// The race detector crashes when two threads fire timers of one bubble: go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	for _, tt := range []struct {
		name string
		dial func(t *testing.T, sent *[]string) func(context.Context, string, string) (net.Conn, error)
		want error
		sent []string
		trip float64 // how many replies the client tripped over
	}{
		{"nobody listens", func(*testing.T, *[]string) func(context.Context, string, string) (net.Conn, error) { return refuse }, counter.ErrNotSent, nil, 0},
		{"the reply is lost", script(map[string]string{"incr": ""}), counter.ErrUnknown, []string{"incr"}, 0},
		{"the reply to ADD is lost", script(map[string]string{"incr": "NOT_FOUND\r\n", "add": ""}), counter.ErrUnknown, []string{"incr", "add"}, 0},
		{"the counter comes and goes", script(map[string]string{"incr": "NOT_FOUND\r\n", "add": "NOT_STORED\r\n"}), counter.ErrNotSent, []string{"incr", "add", "incr"}, 0},
		{"an empty reply, over which the client trips", script(map[string]string{"incr": "\n"}), counter.ErrUnknown, []string{"incr"}, 1},
		{"an error without words, likewise", script(map[string]string{"incr": "CLIENT_ERROR \n"}), counter.ErrUnknown, []string{"incr"}, 1},
		{"out of memory", script(map[string]string{"incr": "SERVER_ERROR out of memory in incr\r\n"}), counter.ErrUnknown, []string{"incr"}, 0},
		{"words instead of a number", script(map[string]string{"incr": "many\r\n"}), counter.ErrUnknown, []string{"incr"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []string
				reg := prometheus.NewPedanticRegistry()
				s := counter.NewShard("s:1", counter.ShardOptions{Dial: tt.dial(t, &sent), Metrics: counter.NewMetrics(reg)})
				defer s.Close()
				if _, err := s.Count("k", 1, 60); !errors.Is(err, tt.want) {
					t.Errorf("Count: %v, want %v", err, tt.want)
				}
				synctest.Wait()
				if diff := cmp.Diff(tt.sent, sent); diff != "" {
					t.Errorf("commands (-want +got):\n%s", diff)
				}
				want := fmt.Sprintf(`
# HELP edge_shard_malformed_replies_total Replies of counter shards that the client could not make sense of.
# TYPE edge_shard_malformed_replies_total counter
edge_shard_malformed_replies_total %v
`, tt.trip)
				if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edge_shard_malformed_replies_total"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// script answers commands by their first word, and notes them.
func script(replies map[string]string) func(*testing.T, *[]string) func(context.Context, string, string) (net.Conn, error) {
	return func(t *testing.T, sent *[]string) func(context.Context, string, string) (net.Conn, error) {
		return scripted(t, func(line string) string {
			word, _, _ := strings.Cut(line, " ")
			*sent = append(*sent, word)
			return replies[word]
		})
	}
}

// A shard that hangs costs a few timeouts, then nothing, until it answers again.
func TestBreaker(t *testing.T) {
	// The race detector crashes when two threads fire timers of one bubble: go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		var hangs atomic.Bool
		var asked atomic.Int64
		hangs.Store(true)
		answer := func(line string) string {
			asked.Add(1)
			switch {
			case hangs.Load():
				time.Sleep(time.Second)
				return ""
			case strings.HasPrefix(line, "get"):
				return "END\r\n"
			}
			return "1\r\n"
		}
		s := counter.NewShard("s:1", counter.ShardOptions{
			Dial: scripted(t, answer), Timeout: 50 * time.Millisecond, Failures: 3, Pause: 250 * time.Millisecond, Metrics: counter.NewMetrics(reg),
		})
		defer s.Close()
		start := time.Now()
		for i := range 20 {
			_, err := s.Count("k", 1, 60)
			want := counter.ErrUnknown
			if i >= 3 {
				want = counter.ErrNotSent
			}
			if !errors.Is(err, want) {
				t.Errorf("Count %d: %v, want %v", i, err, want)
			}
		}
		if took := time.Since(start); took != 150*time.Millisecond || asked.Load() != 3 {
			t.Errorf("20 counts took %v and asked %d times, want 3 timeouts of 50ms", took, asked.Load())
		}
		if s.Available() || !s.Down() {
			t.Errorf("Available = %t and Down = %t while the breaker is open", s.Available(), s.Down())
		}
		if err := s.Probe(); !errors.Is(err, counter.ErrNotSent) {
			t.Errorf("Probe while the breaker is open: %v, want ErrNotSent", err)
		}
		if open := testutil.ToFloat64(gauge(t, reg, "edge_shard_breaker_open")); open != 1 {
			t.Errorf("edge_shard_breaker_open = %v, want 1", open)
		}
		hangs.Store(false)
		time.Sleep(251 * time.Millisecond)
		if !s.Available() || !s.Down() {
			t.Errorf("Available = %t and Down = %t after the pause, want a probe that is still to come", s.Available(), s.Down())
		}
		if err := s.Probe(); err != nil || s.Down() {
			t.Errorf("Probe after the shard answers again: %v, and Down = %t", err, s.Down())
		}
		if n, err := s.Count("k", 1, 60); err != nil || n != 1 {
			t.Errorf("Count after the shard answers again: %d, %v", n, err)
		}
		want := `
# HELP edge_increments_total Increments for counter shards, by result: ok, not_sent (kept, and sent later), unknown (not repeated).
# TYPE edge_increments_total counter
edge_increments_total{result="not_sent"} 17
edge_increments_total{result="ok"} 1
edge_increments_total{result="unknown"} 3
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edge_increments_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		time.Sleep(time.Second) // the scripted connections end
	})
}

// A shard that is gone leaves the metrics, also if something still asks it; one that is back
// is told of again, as it is.
func TestHide(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := counter.NewShard("s:1", counter.ShardOptions{
		Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no such machine") },
		Failures: 1, Metrics: counter.NewMetrics(reg),
	})
	series := func(want int) {
		t.Helper()
		if got, err := testutil.GatherAndCount(reg, "edge_shard_breaker_open", "edge_shard_request_duration_seconds"); got != want || err != nil {
			t.Errorf("%d series, %v; want %d", got, err, want)
		}
	}
	series(1 + 5)
	s.Hide()
	s.Hide()
	if s.Probe() == nil || !s.Down() {
		t.Error("a shard that cannot be reached is not down")
	}
	series(0)
	s.Show()
	s.Show()
	series(1 + 5)
	if open := testutil.ToFloat64(gauge(t, reg, "edge_shard_breaker_open")); open != 1 {
		t.Errorf("edge_shard_breaker_open = %v, want 1", open)
	}
}

// gauge returns the only series of a metric, as it is now.
func gauge(t *testing.T, g prometheus.Gatherer, name string) prometheus.Collector {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			v := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
			v.Set(f.GetMetric()[0].GetGauge().GetValue())
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

// A memcached that restarts costs what was under way, once: connections that it left
// behind are not tried one after the other.
func TestRestart(t *testing.T) {
	m := memcachedtest.Start(t)
	s := counter.NewShard(m.Addr, counter.ShardOptions{Timeout: 10 * time.Second, Connections: 16})
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				if _, err := s.Count(fmt.Sprint("k", i), 1, 60); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m.Restart()
	if _, err := s.Count("k", 1, 60); !errors.Is(err, counter.ErrUnknown) {
		t.Errorf("the first count after the restart: %v, want ErrUnknown", err)
	}
	for i := range uint64(3) {
		count(t, s, "k", 1, i+1)
	}
}

// A million clients of one rule have two counters each.
func TestMemoryOfAMillionClients(t *testing.T) {
	if testing.Short() {
		t.Skip("two million items")
	}
	m := memcachedtest.Start(t, "-m", "1024")
	conn, err := net.Dial("tcp", m.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const clients = 1_000_000
	limit := plain(50, minute)
	var wg sync.WaitGroup
	wg.Go(func() {
		w := bufio.NewWriterSize(conn, 1<<20)
		sec := secret(t, "a secret of a million clients")
		for i := range clients {
			tag := sec.Tag([]byte(fmt.Sprint("client ", i)))
			for window := range int64(2) {
				// The longest number, as packed counts will have it.
				fmt.Fprintf(w, "set %s 0 %d 20 noreply\r\n18446744073709551615\r\n", sec.CounterKey(tag, limit, window), counter.TTL(limit.Period))
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
	t.Logf("%d items in chunks of %d bytes; memcached has allocated %d MB", stats["1:used_chunks"], stats["1:chunk_size"], stats["total_malloced"]/1e6)
	if got := stats["1:used_chunks"]; got < 2*clients {
		t.Errorf("%d items are in the smallest chunks, want %d", got, 2*clients)
	}
	if used > 220e6 || stats["total_malloced"] > 220e6 {
		t.Errorf("a million clients take %d bytes of chunks, memcached has allocated %d, want at most 220 MB", used, stats["total_malloced"])
	}
}

func BenchmarkCount(b *testing.B) {
	for name, start := range map[string]func(testing.TB) string{
		"embedded":  embedded,
		"memcached": func(t testing.TB) string { return memcachedtest.Start(t).Addr },
	} {
		b.Run(name, func(b *testing.B) {
			s := counter.NewShard(start(b), counter.ShardOptions{Timeout: 10 * time.Second, Connections: 16})
			defer s.Close()
			b.SetParallelism(8)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Count("key", 1, 600); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
