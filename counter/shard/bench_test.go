package shard_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
)

// BenchmarkAgainstMemcached puts the same load on memcached, on a shard in a process of
// its own, and on a shard in the client's process, over the loopback interface, with
// keys and numbers like those of counters.
func BenchmarkAgainstMemcached(b *testing.B) {
	for _, peer := range []struct {
		name  string
		start func(b *testing.B) string
	}{
		{"shard", func(b *testing.B) string { return startProcess(b) }},
		{"shard in process", func(b *testing.B) string { return listenTCP(b, shard.Options{}) }},
		{"memcached", func(b *testing.B) string { return harness.StartMemcached(b).Addr }},
	} {
		b.Run(peer.name, func(b *testing.B) {
			addr := peer.start(b)
			b.Run("incr pipelined by 100", func(b *testing.B) { benchmarkIncr(b, dialTCP(b, addr), 100) })
			b.Run("incr one by one", func(b *testing.B) { benchmarkIncr(b, dialTCP(b, addr), 1) })
			b.Run("get of 100 keys", func(b *testing.B) { benchmarkMultiGet(b, dialTCP(b, addr)) })
			b.Run("gomemcache incr in parallel", func(b *testing.B) { benchmarkGomemcache(b, addr) })
		})
	}
}

// BenchmarkPipe uses no network.
func BenchmarkPipe(b *testing.B) {
	b.Run("incr pipelined by 100", func(b *testing.B) { benchmarkIncr(b, dialPipe(b, shard.Options{}), 100) })
	b.Run("get of 100 keys", func(b *testing.B) { benchmarkMultiGet(b, dialPipe(b, shard.Options{})) })
}

// benchmarkIncr increments a key, n times in one write.
func benchmarkIncr(b *testing.B, c *client, n int) {
	c.expect("set 0123456789abcdef 0 0 10\r\n1000000000\r\n", "STORED\r\n")
	request := bytes.Repeat([]byte("incr 0123456789abcdef 1\r\n"), n)
	reply := make([]byte, n*len("1000000000\r\n"))
	c.conn.SetDeadline(noDeadline)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c.conn, reply); err != nil {
			b.Fatal(err)
		}
	}
	reportOps(b, n)
}

func benchmarkMultiGet(b *testing.B, c *client) {
	const n = 100
	request, reply := "get", ""
	for i := range n {
		key := fmt.Sprintf("%016d", i)
		c.expect("set "+key+" 0 0 5\r\n12345\r\n", "STORED\r\n")
		request += " " + key
		reply += "VALUE " + key + " 0 5\r\n12345\r\n"
	}
	line := []byte(request + "\r\n")
	got := make([]byte, len(reply)+len("END\r\n"))
	c.conn.SetDeadline(noDeadline)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.conn.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c.conn, got); err != nil {
			b.Fatal(err)
		}
	}
	reportOps(b, n)
}

var noDeadline time.Time

// reportOps reports operations per second; each iteration has n.
func reportOps(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func benchmarkGomemcache(b *testing.B, addr string) {
	c := memcache.New(addr)
	c.Timeout = patience
	c.MaxIdleConns = 64
	b.Cleanup(func() { c.Close() })
	if err := c.Set(&memcache.Item{Key: "0123456789abcdef", Value: []byte("1000000000")}); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Increment("0123456789abcdef", 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reportOps(b, 1)
}

// BenchmarkMemory fills a shard with a million counters and reports the memory of each.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		before := heap()
		c := dialPipe(b, shard.Options{MaxBytes: 256 << 20})
		pour(c, n, func(buf []byte, i int) []byte {
			return fmt.Appendf(buf, "set %016d 0 100 3 noreply\r\n123\r\n", i)
		})
		if got := c.stats()["curr_items"]; got != n {
			b.Fatalf("curr_items = %d, want %d", got, n)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/item")
		b.ReportMetric(float64(c.stats()["bytes"])/n, "charged-B/item")
		c.conn.Close()
	}
}

// BenchmarkEviction stores new items in a full shard.
func BenchmarkEviction(b *testing.B) {
	c := dialPipe(b, shard.Options{MaxBytes: 1 << 20})
	i := 0
	for b.Loop() {
		pour(c, 1000, func(buf []byte, _ int) []byte {
			i++
			return fmt.Appendf(buf, "set %016d 0 100 3 noreply\r\n123\r\n", i)
		})
	}
	reportOps(b, 1000)
}

// BenchmarkParallelKeys increments different keys, pipelined, over one connection per CPU.
func BenchmarkParallelKeys(b *testing.B) {
	const n = 100
	addr := listenTCP(b, shard.Options{})
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		key := fmt.Sprintf("%p", conn)
		fmt.Fprintf(conn, "set %s 0 0 10\r\n1000000000\r\n", key)
		r.ReadString('\n')
		request := []byte(strings.Repeat("incr "+key+" 1\r\n", n))
		reply := make([]byte, n*len("1000000000\r\n"))
		for pb.Next() {
			conn.Write(request)
			if _, err := io.ReadFull(r, reply); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reportOps(b, n)
}
