package harness

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
)

// A Memcached is a real memcached, which ends with the test.
type Memcached struct {
	*Process        // the current one
	Addr     string // host:port, which Restart keeps
}

// StartMemcached starts memcached with args on a free port of 127.0.0.1, if it is installed.
func StartMemcached(t testing.TB, args ...string) *Memcached {
	t.Helper()
	path := Installed(t, "memcached")
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	m := &Memcached{Addr: ReservePort(t)}
	_, port, _ := net.SplitHostPort(m.Addr)
	m.start(t, exec.Command(path, append([]string{"-l", "127.0.0.1", "-U", "0", "-p", port}, args...)...))
	return m
}

// start starts cmd and waits until it listens. It then writes its port to a file.
func (m *Memcached) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	ports := filepath.Join(t.TempDir(), "ports")
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+ports)
	m.Process = Start(t, cmd)
	Until(t, "memcached listens", Patience, 5*time.Millisecond, func() bool {
		if m.HasEnded() {
			t.Fatal("memcached ended")
		}
		_, err := os.Stat(ports)
		return err == nil
	})
}

// Restart kills memcached, which loses its items, and starts it again on the same port.
func (m *Memcached) Restart() {
	m.t.Helper()
	m.Kill()
	m.start(m.t, exec.Command(m.Cmd.Path, m.Cmd.Args[1:]...))
}

// Stall stops memcached: its connections stay open, and it answers nothing.
func (m *Memcached) Stall() { m.t.Helper(); m.Signal(syscall.SIGSTOP) }

// Resume continues memcached after Stall.
func (m *Memcached) Resume() { m.t.Helper(); m.Signal(syscall.SIGCONT) }

// Values reads the counters and records under keys from a shard. The result omits those that do not exist.
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
