package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/internal/harness"
)

// startShard runs edge shard and returns its addresses.
func startShard(t *testing.T, args ...string) (p *process, addr, metricsAddr string) {
	t.Helper()
	p = start(t, t.TempDir(), append([]string{"shard", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"}, args...)...)
	m := p.Wait(p.Stdout, `^shard listens on (\S+), metrics on http://(\S+)/metrics\n`)
	return p, m[1], m[2]
}

func TestShard(t *testing.T) {
	t.Parallel()
	p, addr, metricsAddr := startShard(t, "--listen="+harness.ReservePort(t))
	c := memcache.New(addr)
	c.Timeout = patience
	defer c.Close()
	if err := c.Ping(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Increment("hits", 1); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("increment of a missing item: %v, want %v", err, memcache.ErrCacheMiss)
	}
	if err := c.Add(&memcache.Item{Key: "hits", Value: []byte("41"), Expiration: 60}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Increment("hits", 1); err != nil || n != 42 {
		t.Errorf("increment of 41 = %d, %v", n, err)
	}
	item, err := c.Get("hits")
	if err != nil || string(item.Value) != "42" {
		t.Fatalf("get: %v, %v", item, err)
	}
	item.Value = []byte("43")
	if err := c.CompareAndSwap(item); err != nil {
		t.Error(err)
	}
	if err := c.CompareAndSwap(item); !errors.Is(err, memcache.ErrCASConflict) {
		t.Errorf("a second swap: %v, want %v", err, memcache.ErrCASConflict)
	}
	m := metrics(t, metricsAddr)
	for _, name := range []string{"edge_shard_server_items", "go_goroutines", "process_open_fds"} {
		if m[name] == nil {
			t.Errorf("missing metric %s", name)
		}
	}
	if a := get(t, http.DefaultClient, "http://"+metricsAddr+"/readyz"); a.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %s", a.Status)
	}
	p.Terminate()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the shard still listens after it stopped")
	}
}

// --memory bounds a shard: the least recently used items are evicted.
func TestShardMemory(t *testing.T) {
	t.Parallel()
	p, addr, _ := startShard(t, "--memory=1")
	c := memcache.New(addr)
	c.Timeout = patience
	defer c.Close()
	value := bytes.Repeat([]byte("v"), 10<<10)
	const items = 400 // of 10 KiB, four times as much as fits
	for i := range items {
		if err := c.Set(&memcache.Item{Key: fmt.Sprint("key", i), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	number := func(name string) int {
		t.Helper()
		for key, v := range allStats(t, addr) {
			if key == name {
				n, err := strconv.Atoi(v)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatalf("no statistic %s", name)
		return 0
	}
	if got := number("limit_maxbytes"); got != 1<<20 {
		t.Errorf("limit_maxbytes = %d, want %d", got, 1<<20)
	}
	if used := number("bytes"); used > 1<<20 || used < 1<<19 {
		t.Errorf("%d bytes are used, want most of a MiB", used)
	}
	if held, evicted := number("curr_items"), number("evictions"); held+evicted != items || held < 40 {
		t.Errorf("%d items held, %d evicted, want %d together", held, evicted, items)
	}
	if _, err := c.Get(fmt.Sprint("key", items-1)); err != nil {
		t.Errorf("the last item: %v", err)
	}
	p.Terminate()
}

func TestShardConnections(t *testing.T) {
	t.Parallel()
	p, addr, _ := startShard(t, "--max-connections=1")
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	fmt.Fprint(first, "version\r\n")
	if got := read(t, first); !strings.HasPrefix(got, "VERSION ") {
		t.Fatalf("the first connection got %q", got)
	}
	second, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got := read(t, second); got != "ERROR Too many open connections\r\n" {
		t.Errorf("the second connection got %q", got)
	}
	// An open connection does not keep a shard from stopping.
	p.Signal(syscall.SIGINT)
	if code := p.End(); code != 0 {
		t.Errorf("exit code after SIGINT = %d, want 0", code)
	}
}
