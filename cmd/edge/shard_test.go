package main

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/internal/harness"
)

// startShard runs edge shard and returns its address.
func startShard(t *testing.T, args ...string) (p *harness.Process, addr string) {
	t.Helper()
	p = start(t, t.TempDir(), append([]string{"shard", "--listen=127.0.0.1:0"}, args...)...)
	return p, p.Wait(p.Stdout, `^shard listens on (\S+)\n`)[1]
}

// statsOf returns the statistics of a memcached server.
func statsOf(t *testing.T, addr string) map[string]string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(conn, "stats\r\nquit\r\n")
	text, readErr := io.ReadAll(conn)
	if err != nil || readErr != nil || !strings.Contains(string(text), "STAT cmd_get ") {
		t.Fatalf("stats of %s: %v, %v, %q", addr, err, readErr, text)
	}
	stats := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			stats[f[1]] = f[2]
		}
	}
	return stats
}

func TestShard(t *testing.T) {
	t.Parallel()
	p, addr := startShard(t, "--memory=1")
	c := memcache.New(addr)
	c.Timeout = patience
	defer c.Close()
	if err := c.Set(&memcache.Item{Key: "hits", Value: []byte("41"), Expiration: 60}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Increment("hits", 1); err != nil || n != 42 {
		t.Errorf("increment of 41 = %d, %v", n, err)
	}
	if got := statsOf(t, addr)["limit_maxbytes"]; got != "1048576" {
		t.Errorf("limit_maxbytes = %s, want a MiB", got)
	}
	p.Signal(syscall.SIGINT) // an open connection does not keep a shard from stopping
	if code := p.End(); code != 0 {
		t.Errorf("exit code after SIGINT = %d, want 0", code)
	}
}
