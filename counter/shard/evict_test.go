package shard_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

// The smallest store has one stripe, and room for this many counters.
const (
	smallest      = 64 << 10
	smallestItems = smallest / 104
)

// fill sets k0 … k(n-1).
func fill(c *client, n int) {
	c.t.Helper()
	for i := range n {
		c.expect(fmt.Sprintf("set k%d 0 0 1\r\n1\r\n", i), "STORED\r\n")
	}
}

func TestUsedItemsAreNotEvicted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{MaxBytes: smallest})
		fill(c, smallestItems)
		if got := c.stats()["evictions"]; got != 0 {
			t.Fatalf("evictions = %d in a store that is just full", got)
		}
		// All are used: the first eviction passes over each once.
		c.expect("set new 0 0 1\r\n1\r\n", "STORED\r\n")
		inUse := []string{"k100", "k101", "k200", "k300", "k600"}
		for range 10 {
			for i, key := range inUse {
				switch i % 4 {
				case 0:
					c.expect("get "+key+"\r\n", "VALUE "+key+" 0 1\r\n1\r\nEND\r\n")
				case 1:
					c.expect("incr "+key+" 0\r\n", "1\r\n")
				case 2:
					c.expect("set "+key+" 0 0 1\r\n1\r\n", "STORED\r\n")
				case 3:
					c.expect("add "+key+" 0 0 1\r\n1\r\n", "NOT_STORED\r\n")
				}
			}
			for i := range smallestItems / 4 {
				c.expect(fmt.Sprintf("set once%d 0 0 1\r\n1\r\n", i), "STORED\r\n")
				c.expect(fmt.Sprintf("delete once%d\r\n", i-3), map[bool]string{false: "DELETED\r\n", true: "NOT_FOUND\r\n"}[i < 3])
			}
		}
		for _, key := range inUse {
			c.expect("get "+key+"\r\n", "VALUE "+key+" 0 1\r\n1\r\nEND\r\n")
		}
	})
}

func TestEvictionMakesRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{MaxBytes: smallest})
		fill(c, 2*smallestItems)
		stats := c.stats()
		for name, want := range map[string]int64{
			"evictions": smallestItems + 1, "reclaimed": 0, // one place at the end of the log is empty
			"curr_items": smallestItems - 1, "bytes": smallestItems*104 - 104, "limit_maxbytes": smallest,
		} {
			if stats[name] != want {
				t.Errorf("%s = %d, want %d", name, stats[name], want)
			}
		}
		value := strings.Repeat("x", 10*104)
		c.expect(fmt.Sprintf("set v 0 0 %d\r\n%s\r\n", len(value), value), "STORED\r\n")
		c.expect("get v\r\n", fmt.Sprintf("VALUE v 0 %d\r\n%s\r\nEND\r\n", len(value), value))
		if got := c.stats()["evictions"] - smallestItems - 1; got != 16 {
			t.Errorf("a long value evicted %d counters, want 16", got)
		}
		c.expect(fmt.Sprintf("set v 0 0 %d\r\n%s\r\n", smallest/4+1, strings.Repeat("x", smallest/4+1)), "SERVER_ERROR object too large for cache\r\n")
	})
}

// In a log with room for all live items, nothing is evicted, however often it wraps.
func TestLiveItemsSurviveWraps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{MaxBytes: smallest})
		fill(c, smallestItems/2)
		for i := range 20 * smallestItems {
			c.expect(fmt.Sprintf("set brief%d 0 -1 1\r\n1\r\n", i), "STORED\r\n")
		}
		if got := c.stats()["evictions"]; got != 0 {
			t.Errorf("evictions = %d, want 0", got)
		}
		for i := range smallestItems / 2 {
			c.expect(fmt.Sprintf("get k%d\r\n", i), fmt.Sprintf("VALUE k%d 0 1\r\n1\r\nEND\r\n", i))
		}
	})
}

// Expired items go before live ones that have not been used for longer.
func TestExpiredItemsGoFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{MaxBytes: smallest})
		const every = 10
		for i := range smallestItems {
			ttl := 0
			if i%every == 0 {
				ttl = 10
			}
			c.expect(fmt.Sprintf("set k%d 0 %d 1\r\n1\r\n", i, ttl), "STORED\r\n")
		}
		time.Sleep(10 * time.Second)
		const n = smallestItems / every
		for i := range n {
			c.expect(fmt.Sprintf("set new%d 0 0 1\r\n1\r\n", i), "STORED\r\n")
		}
		stats := c.stats()
		if stats["evictions"] != 0 || stats["reclaimed"] < n {
			t.Errorf("evictions, reclaimed = %d, %d, want 0 and at least %d", stats["evictions"], stats["reclaimed"], n)
		}
	})
}

func TestFlushedItemsAreNotEvicted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{MaxBytes: smallest})
		fill(c, smallestItems)
		c.expect("flush_all\r\n", "OK\r\n")
		fill(c, smallestItems)
		if got := c.stats()["evictions"]; got != 0 {
			t.Errorf("evictions = %d, want 0", got)
		}
	})
}

// pour sends n requests without waiting for replies, and fails if there is one.
func pour(c *client, n int, request func(b []byte, i int) []byte) {
	c.t.Helper()
	b := make([]byte, 0, 1<<16)
	for i := range n {
		if b = request(b, i); len(b) > 1<<15 || i == n-1 {
			c.conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := c.conn.Write(b); err != nil {
				c.t.Fatal(err)
			}
			b = b[:0]
		}
	}
	c.expect(ping, pong)
}

func heap() int64 {
	for range 3 { // pools keep their contents for two collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A full store takes MaxBytes, whatever the sizes of its present and past items.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 8 << 20
	before := heap()
	c := dialPipe(t, shard.Options{MaxBytes: limit})
	for round, fill := range []struct {
		name string
		n    int
		len  int
	}{
		{"counters", 100_000, 4},
		{"short values", 25_000, 300},
		{"long values", 200, 100_000},
		{"counters again", 100_000, 4},
	} {
		value := strings.Repeat("1", fill.len)
		pour(c, fill.n, func(b []byte, i int) []byte {
			return fmt.Appendf(b, "set %d:%014d 0 0 %d noreply\r\n%s\r\n", round, i, len(value), value)
		})
		got, stats := heap()-before, c.stats()
		t.Logf("%s: %d items, bytes %d, heap %.1f %% of MaxBytes",
			fill.name, stats["curr_items"], stats["bytes"], 100*float64(got)/limit)
		if got > limit*102/100 || got < limit*90/100 {
			t.Errorf("%s: the heap has grown by %d, want about %d", fill.name, got, limit)
		}
		if stats["bytes"] > limit {
			t.Errorf("%s: bytes = %d, want at most %d", fill.name, stats["bytes"], limit)
		}
	}
}

func TestMemoryOfHalfReadValues(t *testing.T) {
	before := heap()
	ln := shard.NewPipe()
	newServer(t, shard.Options{}, ln)
	for range 100 {
		c := dial(t, ln)
		if _, err := io.WriteString(c.conn, "set k 0 0 100000\r\nabc"); err != nil {
			t.Fatal(err)
		}
	}
	if got := heap() - before; got > 100*40<<10 {
		t.Errorf("100 connections that announce 100 KB each take %d bytes before the values arrive", got)
	}
}
