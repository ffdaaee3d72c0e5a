package shard_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
)

// TestGomemcache uses gomemcache with a shard and with the real memcached.
func TestGomemcache(t *testing.T) {
	t.Run("shard", func(t *testing.T) { useGomemcache(t, listenTCP(t, shard.Options{})) })
	t.Run("memcached", func(t *testing.T) { useGomemcache(t, harness.StartMemcached(t).Addr) })
}

func useGomemcache(t *testing.T, addr string) {
	c := memcache.New(addr)
	c.Timeout = patience
	defer c.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	must(c.Ping())

	_, err := c.Increment("n", 5)
	want(err, memcache.ErrCacheMiss)
	must(c.Add(&memcache.Item{Key: "n", Value: []byte("5"), Expiration: 100}))
	want(c.Add(&memcache.Item{Key: "n", Value: []byte("6")}), memcache.ErrNotStored)
	n, err := c.Increment("n", 7)
	must(err)
	if n != 12 {
		t.Errorf("Increment = %d, want 12", n)
	}
	must(c.Set(&memcache.Item{Key: "a", Value: []byte("1"), Flags: 7}))

	items, err := c.GetMulti([]string{"a", "b", "n"})
	must(err)
	got := make(map[string]string)
	for key, it := range items {
		got[key] = fmt.Sprintf("%s/%d", it.Value, it.Flags)
	}
	if diff := cmp.Diff(map[string]string{"a": "1/7", "n": "12/0"}, got); diff != "" {
		t.Errorf("GetMulti: -want +got\n%s", diff)
	}

	it, err := c.Get("a")
	must(err)
	it.Value = []byte("changed")
	must(c.CompareAndSwap(it))
	want(c.CompareAndSwap(it), memcache.ErrCASConflict)
	must(c.Delete("a"))
	want(c.CompareAndSwap(it), memcache.ErrCacheMiss)
	want(c.Delete("a"), memcache.ErrCacheMiss)

	must(c.Set(&memcache.Item{Key: "a", Value: make([]byte, 1<<17)}))
	if err := c.Set(&memcache.Item{Key: "a", Value: make([]byte, 1<<20)}); err == nil {
		t.Error("Set of 1 MiB succeeded, want an error")
	}
	_, err = c.Get("a")
	want(err, memcache.ErrCacheMiss)

	must(c.Set(&memcache.Item{Key: "a", Value: []byte("1")}))
	must(c.FlushAll())
	must(c.DeleteAll())
	_, err = c.Get("a")
	want(err, memcache.ErrCacheMiss)
	must(c.Close())
}

// Many clients increment a few keys while they also read, and evict other items. No
// increment is lost or made twice.
func TestConcurrentClients(t *testing.T) {
	const clients, rounds, keys = 8, 300, 5
	addr := listenTCP(t, shard.Options{MaxBytes: 1 << 20})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := memcache.New(addr)
			c.Timeout = patience
			defer c.Close()
			for j := range rounds {
				key := fmt.Sprint("count", j%keys)
				_, err := c.Increment(key, 1)
				if errors.Is(err, memcache.ErrCacheMiss) {
					err = c.Add(&memcache.Item{Key: key, Value: []byte("1")})
					if errors.Is(err, memcache.ErrNotStored) {
						_, err = c.Increment(key, 1)
					}
				}
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
				// Together they exceed the memory.
				if err := c.Set(&memcache.Item{Key: fmt.Sprintf("filler-%d-%d", i, j), Value: make([]byte, 1000)}); err != nil {
					t.Error(err)
				}
				if _, err := c.GetMulti([]string{"count0", "count1", "nothing"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c := dialTCP(t, addr)
	for k := range keys {
		c.expect(fmt.Sprintf("incr count%d 0\r\n", k), fmt.Sprint(clients*rounds/keys, "\r\n"))
	}
	if c.stats()["evictions"] == 0 {
		t.Error("nothing was evicted, want evictions")
	}
}

// Clients increment one key in long pipelines. Each sees only increasing values.
func TestConcurrentPipelines(t *testing.T) {
	const clients, rounds = 4, 2000
	addr := listenTCP(t, shard.Options{})
	dialTCP(t, addr).expect("set k 0 0 1\r\n0\r\n", "STORED\r\n")
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			wg.Go(func() {
				for range rounds {
					fmt.Fprint(conn, "incr k 1\r\n")
				}
			})
			last := 0
			for range rounds {
				var n int
				if _, err := fmt.Fscanf(conn, "%d\r\n", &n); err != nil || n <= last {
					t.Errorf("got %d after %d: %v", n, last, err)
					return
				}
				last = n
			}
		})
	}
	wg.Wait()
	dialTCP(t, addr).expect("incr k 0\r\n", fmt.Sprint(clients*rounds, "\r\n"))
}
