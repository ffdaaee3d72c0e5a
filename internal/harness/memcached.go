package harness

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/edgelimit/edge/counter"
)

// StartMemcached starts a real memcached with args on a free port of 127.0.0.1. It skips the test if memcached is not
// installed.
func StartMemcached(t testing.TB, args ...string) *Server {
	t.Helper()
	path := Installed(t, "memcached")
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	m := &Server{Addr: ReservePort(t)}
	_, port, _ := net.SplitHostPort(m.Addr)
	m.start(t, exec.Command(path, append([]string{"-l", "127.0.0.1", "-U", "0", "-p", port}, args...)...))
	return m
}

// Values reads the counters and records under keys from a shard. The result omits keys that do not exist.
func Values(t testing.TB, shard interface{ Exchange(*counter.Batch) error }, keys ...string) map[string][]byte {
	t.Helper()
	var b counter.Batch
	for _, key := range keys {
		b.Reads = append(b.Reads, counter.Read{Item: counter.Item([]byte(key))})
	}
	if err := shard.Exchange(&b); err != nil {
		t.Fatal(err)
	}
	values := map[string][]byte{}
	for i, read := range b.Reads {
		if read.Outcome == counter.Done {
			values[keys[i]] = read.Value
		}
	}
	return values
}
